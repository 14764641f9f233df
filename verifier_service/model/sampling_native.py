"""The compiled Gumbel argmax (sampling_native.c): the same tokens as core/sampling.py, sooner."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foredraft.streams import stream_key
from verifier_service.core.sampling import HEAD_NATS, Draw, GumbelArgmax, gumbel_argmax
from verifier_service.model.native import library

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Far above what two ways to compute the noise can differ by (1e-12), far below what two scores
# usually do.
_SURE_LEAD = 1e-9


def best_argmax() -> GumbelArgmax:
    """Return the compiled argmax where it was built, else the reference."""
    kernels = library()
    return gumbel_argmax if kernels is None else NativeArgmax(kernels)


class NativeArgmax:
    """argmax_v [z(v) + g(seed, position, v)] of each row; near-ties go to the reference."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._draw = kernels.fd_draw

    def __call__(self, z: npt.NDArray[np.float64], draws: Sequence[Draw]) -> list[int]:
        tokens = []
        lead = ctypes.c_double()
        at = ctypes.byref(lead)
        rows, vocabulary = z.shape
        address, stride = z.ctypes.data, z.strides[0]
        for row in range(rows):
            sampling, position = draws[row]
            key = stream_key(sampling.seed, position)
            token = self._draw(address + row * stride, vocabulary, key, HEAD_NATS, at)
            if not lead.value > _SURE_LEAD:
                token = gumbel_argmax(z[row : row + 1], draws[row : row + 1])[0]
            tokens.append(token)
        return tokens
