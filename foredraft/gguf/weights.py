"""Tensors of a GGUF file, dequantized and written as bfloat16 safetensors piece by piece."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from foredraft.errors import WeightsError
from foredraft.gguf.header import GgufFile, TensorInfo
from foredraft.gguf.permutation import row_order
from foredraft.gguf.progress import Progress
from foredraft.gguf.tensors import Wanted

# Values that are dequantized at once.
_PIECE = 1 << 21
_LARGEST = np.float32(3.3895314e38)  # bfloat16's largest


def check_types(tensors: Iterable[TensorInfo]) -> None:
    """Raise WeightsError naming a tensor whose quantization the gguf package cannot undo."""
    seen: set[GGMLQuantizationType] = set()
    for tensor in tensors:
        if tensor.type in seen:
            continue
        seen.add(tensor.type)
        try:
            dequantize(np.zeros((1, GGML_QUANT_SIZES[tensor.type][1]), np.uint8), tensor.type)
        except NotImplementedError:
            raise WeightsError(
                f"{tensor.name} has the quantization {tensor.type.name}, which is not supported"
            ) from None


def values(file: GgufFile, tensor: TensorInfo, heads: int = 0) -> Iterator[np.ndarray]:
    """Yield a tensor's values as float32 [rows, row] pieces, in transformers' order of rows.

    heads is how many heads llama.cpp's permutation moved rows in, 0 for none. Raise WeightsError
    naming a tensor that holds what is no number.
    """
    per_block, block_bytes = GGML_QUANT_SIZES[tensor.type]
    # A vector whose elements are permuted is a column of rows; its type has no blocks.
    width = 1 if heads and len(tensor.shape) == 1 else tensor.shape[-1]
    if width % per_block:
        raise WeightsError(f"{tensor.name} cannot be permuted in {tensor.type.name}")
    rows = file.bytes_of(tensor).reshape(-1, width // per_block * block_bytes)
    order = row_order(heads, len(rows) // heads) if heads else None
    step = max(1, _PIECE // width)
    for begin in range(0, len(rows), step):
        end = begin + step
        stored = rows[begin:end] if order is None else rows[order[begin:end]]
        with np.errstate(all="ignore"):
            found: np.ndarray = dequantize(np.ascontiguousarray(stored), tensor.type)
        if not np.abs(found).max() <= _LARGEST:
            raise WeightsError(f"{tensor.name} holds values that are not finite")
        yield found


def write_weights(file: GgufFile, wanted: list[Wanted], path: Path, progress: Progress) -> None:
    """Write the wanted tensors to a safetensors file; raise WeightsError for values not finite."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for each in wanted:
        end = offset + 2 * math.prod(each.shape)
        shape = list(each.shape)
        header[each.name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    done, total = 0, offset // 2
    progress(done, total)
    with path.open("wb") as out:
        out.write(len(encoded).to_bytes(8, "little") + encoded)
        for each in wanted:
            for piece in values(file, file.tensors[each.source], each.permuted_heads):
                out.write(_bfloat16(piece).tobytes())
                done += piece.size
                progress(done, total)


def _bfloat16(found: np.ndarray) -> np.ndarray:
    """Return the upper halves (uint16) of float32 values, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(found, np.float32).view(np.uint32)
    rounded: np.ndarray = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return rounded.astype("<u2")
