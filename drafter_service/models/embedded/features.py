"""The target's features as rows beside committed tokens: each of the token before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from drafter_service.models.port import BlockRequest

LAG = 1
"""A token's row reads the features of the token before it."""


def feature_rows(requests: Sequence[BlockRequest], width: int) -> npt.NDArray[np.float32]:
    """Return the features [tokens, width] of the requests' tokens, in their order.

    A text's first token has zeros. Raise ValueError where a request has others than those of its
    tokens.
    """
    rows = np.zeros((sum(len(r.tokens) for r in requests), width), np.float32)
    bits, at = rows.view(np.uint32), 0
    for r in requests:
        missing = LAG if r.start == 0 else 0
        found = np.frombuffer(r.features, np.uint16).reshape(-1, width)
        end = at + len(r.tokens)
        if len(found) != len(r.tokens) - missing:
            raise ValueError(f"features of {len(found)} tokens for {len(r.tokens)} from {r.start}")
        # bfloat16 is the upper half of fp32.
        bits[at + missing : end] = found.astype(np.uint32) << 16
        at = end
    return rows
