"""Block verification: the drafted tokens of a round are accepted together, not one by one.

Sun, Mendlovic, Leviathan, Aharoni, Beirami, Ro and Suresh, "Block Verification Accelerates
Speculative Decoding", 2024. It keeps at least as many tokens on average as rejection sampling, and
is as exact. Shapes are those of `rejection`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.types import Candidates
from verifier_service.rules.rejection import Counts, Flags, Floats, Odds, leftover, share


def block_odds(p: Floats, draft: Sequence[int], q: Sequence[Candidates]) -> Odds:
    """Return h_1..h_k and p_0..p_k of Sun et al. 2024, Algorithm 2.

    p_0 = 1 and p_i = min(1, p_{i-1} p(x_i) / q(x_i)), the odds that x_1..x_i can be kept at all.
    h_i = S_i / (S_i + 1 - p_i) with S_i = sum_v max(0, p_i p(v | x_1..x_i) - q_{i+1}(v)) for i < k,
    and h_k = p_k. With `last` and `next_weights` the text has the target's law, as for `rejection`.
    """
    reach = [1.0]
    for row, token, candidates in zip(p, draft, q, strict=False):
        reach.append(min(1.0, reach[-1] * float(row[token]) / share(candidates, token)))
    keep = []
    for row, candidates, odds in zip(p[1:], q[1:], reach[1:], strict=False):
        left = float(leftover(row, candidates, odds).sum())
        # 0 / 0: p_i is 1 and p is q next, so a longer prefix passes for certain.
        keep.append(left / (left + (1.0 - odds)) if left > 0 or odds < 1 else 1.0)
    return Odds(np.array([*keep, reach[-1]]), np.array(reach))


def last(passed: Flags) -> Counts:
    """Return the place, from 1 on, of the last token that passed, 0 if none did: [..., k] to [...].

    A token before it is kept whether it passed or not.
    """
    kept: Counts = (passed * np.arange(1, passed.shape[-1] + 1)).max(axis=-1)
    return kept
