"""Keep while equal: a drafted token stays while it is the token that the target itself chose.

The target's choice at a position is a function of the prefix, the sampling and the shared noise
alone (design.md section 1), so the result is the target's own sample path for every proposal, and
the draft decides only how much of it one forward finds.
"""

from __future__ import annotations

from collections.abc import Sequence


def keep_while_equal(draft: Sequence[int], chosen: Sequence[int]) -> tuple[int, int]:
    """Return (number of leading draft tokens kept, the target's next token).

    chosen[i] is the target's choice after the prefix and draft[:i], so it has one entry more than
    the draft: the last one is the bonus token of a fully kept draft.
    """
    if len(chosen) != len(draft) + 1:
        raise ValueError("chosen must have one entry more than draft")
    accepted = 0
    while accepted < len(draft) and draft[accepted] == chosen[accepted]:
        accepted += 1
    return accepted, chosen[accepted]
