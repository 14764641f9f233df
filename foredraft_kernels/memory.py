"""Memory for packed weights, and the order of their columns and inputs in panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from foredraft_kernels.structs import COLUMNS, LINE

_ALIGNMENT = 64


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Return `size` uninitialised bytes that begin on a cache line."""
    raw = np.empty(size + _ALIGNMENT, dtype=np.uint8)
    skip = -raw.ctypes.data % _ALIGNMENT
    return raw[skip : skip + size]


class Arena:
    """Arrays after each other in one allocation: in huge pages, and in the order of reading."""

    def __init__(self, size: int) -> None:
        self._memory = aligned(size)
        self._used = 0

    @property
    def filled(self) -> npt.NDArray[np.uint8]:
        """The bytes of all arrays so far, and of the gaps between them."""
        return self._memory[: self._used]

    def put(self, array: npt.NDArray[Any]) -> int:
        """Copy an array in and return its address, a multiple of 64."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        begin = self._used
        self._used = begin + -(-flat.size // _ALIGNMENT) * _ALIGNMENT
        assert self._used <= self._memory.size, "the arena is too small for the model"
        self._memory[begin : begin + flat.size] = flat
        return int(self._memory.ctypes.data) + begin


def gate_interleaved(gate_up: Any) -> Any:
    """Reorder an array or a tensor [2 inner, ...]: half a panel's columns gate the other half."""
    halves = gate_up.reshape(2, -1, COLUMNS // 2, *gate_up.shape[1:])
    return halves.swapaxes(0, 1).reshape(gate_up.shape)


def in_lines(weight: Any, isa: str) -> Any:
    """Reorder the inputs of bf16 weights [out, in] as a row's numbers stand in its lines.

    A unit has two neighbours; for AMX, a number of each half of a line (verifier/lines.h).
    """
    if isa != "amx":
        return weight
    half = np.arange(LINE // 2) ^ 1
    order = np.stack([half, LINE // 2 + half], axis=1).reshape(-1)
    return weight.reshape(len(weight), -1, LINE)[..., order].reshape(weight.shape)
