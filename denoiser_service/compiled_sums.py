"""The compiled sums (verifier/masses.c): those of core/draws.py within a bound, sooner."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from denoiser_service.core.draws import Logits, Sums, sums
from foredraft.errors import CorruptModelOutput
from foredraft_kernels.loader import load_kernels

TakeSums = Callable[[Logits], Sums]

# Above what two sums of exponentials in single precision differ by: the relative error of an
# exponential, 3e-7, and of 64 additions, 4e-6.
_ERROR = 1e-5


def best_sums() -> TakeSums:
    """Return the compiled sums where they were built, else the reference."""
    kernels = load_kernels()
    return sums if kernels is None else NativeSums(kernels)


class NativeSums:
    """core.draws.sums in one pass over the rows' memory."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._masses = kernels.fd_masses

    def __call__(self, logits: Logits) -> Sums:
        """Return the sums of rows [n, V]; raise CorruptModelOutput as the reference does."""
        rows, vocabulary = logits.shape
        if logits.dtype != np.float32 or logits.strides[1] != logits.itemsize:
            return sums(logits)
        highest, masses = np.empty(rows), np.empty(rows)
        self._masses(
            logits.ctypes.data,
            rows,
            logits.strides[0] // logits.itemsize,
            vocabulary,
            highest.ctypes.data,
            masses.ctypes.data,
        )
        if not (np.isfinite(highest).all() and np.isfinite(masses).all()):
            raise CorruptModelOutput("the model's logits are not finite")
        return Sums(highest, highest + np.log(masses), _ERROR)
