"""foredraft.noise.gumbel.gumbel by compiled code: the same bits, sooner."""

from __future__ import annotations

import ctypes
from array import array

import numpy as np
import numpy.typing as npt

from foredraft.noise.gumbel import Noise, gumbel
from foredraft.noise.streams import stream_key


def best_noise(kernels: ctypes.CDLL | None) -> Noise:
    """Return the compiled noise where that was built, else the reference."""
    return gumbel if kernels is None else NativeNoise(kernels)


class NativeNoise:
    """g(seed, position, token) of tokens [n, m] at positions [n]."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._gumbel = kernels.fd_gumbel

    def __call__(
        self, seed: int, positions: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        keys = array("q", [stream_key(seed, position) for position in positions.tolist()])
        of_each = np.ascontiguousarray(tokens, dtype=np.int64)
        if of_each.shape[:-1] != positions.shape:
            raise ValueError(f"tokens {of_each.shape} at positions {positions.shape}")
        rows, columns = of_each.shape
        noise = np.empty((rows, columns))
        at = keys.buffer_info()[0]
        self._gumbel(at, rows, of_each.ctypes.data, columns, noise.ctypes.data)
        return noise
