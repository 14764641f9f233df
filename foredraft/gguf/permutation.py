"""llama.cpp's order of the rows of q and k, undone.

Rotary embeddings turn pairs of values. transformers pairs row i of a head with row i + head_dim/2,
llama.cpp its rows 2i and 2i + 1; for Llama its converter moves the rows to its own order.
"""

from __future__ import annotations

import numpy as np


def row_order(heads: int, head_dim: int) -> np.ndarray:
    """Return, for each row in transformers' order, llama.cpp's row (heads * head_dim of int64)."""
    rows = np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2)
    return rows.swapaxes(1, 2).reshape(-1)
