"""Arrays of fixed shapes that are filled on the host and travel to a device in one copy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt

# Kernels are compiled for aligned arrays, and an unaligned one is copied first.
_ALIGNED_BYTES = 128


class Field(NamedTuple):
    """An array's shape, and whether its numbers are int64 (what torch indexes with) or int32."""

    shape: tuple[int, ...]
    wide: bool = False


class DeviceArrays:
    """The arrays, by name: `host` is written to, `send` brings all of it to `device`.

    The device's tensors stay at their addresses, so that a captured graph may read them.
    """

    def __init__(self, fields: Mapping[str, Field], device: torch.device) -> None:
        starts, end = {}, 0
        for name, (shape, wide) in fields.items():
            starts[name] = end
            size = math.prod(shape) * (8 if wide else 4)
            end += -(-size // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self._host = np.zeros(end, np.uint8)
        self._device = torch.zeros(end, dtype=torch.uint8, device=device)
        self.host: dict[str, npt.NDArray[Any]] = {}
        self.device: dict[str, torch.Tensor] = {}
        for name, (shape, wide) in fields.items():
            part = slice(starts[name], starts[name] + math.prod(shape) * (8 if wide else 4))
            self.host[name] = self._host[part].view(np.int64 if wide else np.int32).reshape(shape)
            kind = torch.int64 if wide else torch.int32
            self.device[name] = self._device[part].view(kind).view(shape)

    def clear(self) -> None:
        """Make every number on the host zero."""
        self._host.fill(0)

    def send(self) -> None:
        """Copy the host's numbers to the device; they may be overwritten once this returns."""
        self._device.copy_(torch.from_numpy(self._host))
