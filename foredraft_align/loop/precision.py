"""In which precision a training multiplies: bf16 where the CPU has it, four times as fast."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

import torch

from verifier_service.models.numerics import native_bf16


@cache
def product_dtype() -> torch.dtype:
    """Return the type of matrix products; sums, norms and the loss stay in fp32."""
    return torch.bfloat16 if native_bf16() else torch.float32


def fast_products() -> AbstractContextManager[object]:
    """Return a context in which products are in that type."""
    dtype = product_dtype()
    return torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)
