"""A GGUF file's header: its metadata and where each tensor lies, every size checked.

The gguf package's own reader trusts a file's own lengths; this one does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from foredraft.errors import WeightsError
from foredraft.gguf.cursor import Cursor

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# More than any model has: what exceeds them is no model.
_MOST_KEYS, _MOST_TENSORS, _MOST_DIMENSIONS, _LONGEST_NAME = 1 << 16, 1 << 17, 4, 1 << 16
_STRING, _ARRAY, _BOOL = 8, 9, 7
# struct's letter of each kind of number, by the file's number for it.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q"}
_NUMBERS |= {12: "d"}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: its shape, rows first, and the bytes of the file that hold it."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A file whose header was read; `data` maps its bytes (uint8)."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    data: np.ndarray

    def bytes_of(self, tensor: TensorInfo) -> np.ndarray:
        """Return a tensor's bytes, uint8 of its size."""
        return self.data[tensor.begin : tensor.begin + tensor.size]


def read_header(path: Path) -> GgufFile:
    """Return the file's header; raise WeightsError naming what is missing, too large or unknown."""
    try:
        if not path.is_file():
            raise WeightsError(f"there is no GGUF file {path.name!r}")
        if path.stat().st_size == 0:
            raise WeightsError("the GGUF file is empty")
        data = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except OSError as error:
        raise WeightsError(f"the GGUF file cannot be read: {error.strerror}") from None
    cursor = Cursor(data)
    if cursor.take(4, "the magic").tobytes() != _MAGIC:
        raise WeightsError("this is not a GGUF file: it does not begin with GGUF")
    version = cursor.number("I", "the version")
    if version not in _VERSIONS:
        raise WeightsError(f"GGUF version {version} is not supported, only little-endian 2 and 3")
    tensors = _count(cursor, "the number of tensors", _MOST_TENSORS)
    keys = _count(cursor, "the number of metadata keys", _MOST_KEYS)
    metadata: dict[str, Any] = {}
    for number in range(keys):
        key = cursor.text(f"metadata key {number}", _LONGEST_NAME)
        if key in metadata:
            raise WeightsError(f"the metadata key {key} is there twice")
        metadata[key] = _value(cursor, cursor.number("I", key), key)
    return GgufFile(metadata, _tensors(cursor, tensors, _alignment(metadata), len(data)), data)


def _count(cursor: Cursor, what: str, most: int) -> int:
    count: int = cursor.number("Q", what)
    if count > most:
        raise WeightsError(f"{what} is {count}; at most {most} are allowed")
    return count


def _value(cursor: Cursor, kind: int, key: str) -> Any:
    if kind in _NUMBERS:
        number = cursor.number(_NUMBERS[kind], key)
        return bool(number) if kind == _BOOL else number
    if kind == _STRING:
        return cursor.text(key)
    if kind != _ARRAY:
        raise WeightsError(f"{key} has a value of the unknown type {kind}")
    of, count = cursor.number("I", key), cursor.number("Q", key)
    if of in _NUMBERS:
        # np's byte letters differ from struct's in none of these.
        stored = np.dtype(_NUMBERS[of]).newbyteorder("<")
        return cursor.take(count * stored.itemsize, key).view(stored).tolist()
    if of != _STRING:
        raise WeightsError(f"{key} is an array of the unsupported type {of}")
    if count * 8 > cursor.left:
        raise WeightsError(f"the GGUF file is truncated: {key} has {count} strings")
    return [cursor.text(f"{key}[{index}]") for index in range(count)]


def _alignment(metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise WeightsError(f"general.alignment is {alignment!r}; it must be a power of two")
    return alignment


def _tensors(cursor: Cursor, count: int, alignment: int, size: int) -> dict[str, TensorInfo]:
    """Return the tensors by name; size is that of the file, in bytes."""
    entries = [_entry(cursor, f"tensor {number}") for number in range(count)]
    begin = -(-cursor.at // alignment) * alignment
    found: dict[str, TensorInfo] = {}
    for name, shape, kind, offset in entries:
        if name in found:
            raise WeightsError(f"the tensor {name} is there twice")
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        if shape[-1] % per_block:
            raise WeightsError(
                f"the rows of {name} have {shape[-1]} values, which {kind.name} cannot store"
            )
        nbytes = math.prod(shape) // per_block * block_bytes
        if begin + offset + nbytes > size:
            end = begin + offset + nbytes
            raise WeightsError(f"the GGUF file is truncated: {name} ends at byte {end} of {size}")
        found[name] = TensorInfo(name, shape, kind, begin + offset, nbytes)
    return found


def _entry(cursor: Cursor, what: str) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
    """Return a tensor's name, shape, type and offset from the first tensor."""
    name = cursor.text(f"the name of {what}", _LONGEST_NAME)
    dimensions = cursor.number("I", name)
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise WeightsError(
            f"{name} has {dimensions} dimensions; 1 to {_MOST_DIMENSIONS} are allowed"
        )
    # The file names the fastest dimension first.
    shape = tuple(cursor.number("Q", name) for _ in range(dimensions))[::-1]
    if 0 in shape:
        raise WeightsError(f"{name} has an empty dimension")
    kind = cursor.number("I", name)
    if kind not in GGMLQuantizationType.__members__.values():
        raise WeightsError(f"{name} has the unknown quantization type {kind}")
    return name, shape, GGMLQuantizationType(kind), cursor.number("Q", name)
