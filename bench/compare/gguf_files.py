"""The same weights in other GGUF types, so that llama.cpp can be measured at its best."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

from foredraft.errors import ConfigError

TYPES = ("BF16", "Q8_0")
# Written by the writer itself, or different in the new file.
_OWN_FIELDS = ("GGUF.", "general.architecture", "general.file_type")


def convert(source: Path, folder: Path, type_name: str) -> Path:
    """Return a GGUF file in folder with the source's metadata and its matrices as type_name.

    A file that is there already is kept. Vectors stay as they are. The values are those of the
    source, rounded once more. Raise ConfigError for a source that cannot be read.
    """
    if type_name not in TYPES:
        raise ConfigError(f"type must be one of {', '.join(TYPES)}", param="type")
    out = folder / f"{source.stem}.{type_name}.gguf"
    if out.is_file():
        return out
    folder.mkdir(parents=True, exist_ok=True)
    try:
        reader = gguf.GGUFReader(source)
    except (OSError, ValueError) as error:
        raise ConfigError(f"gguf: {source} cannot be read: {error}", param="gguf") from None
    # A conversion that is interrupted leaves no file of the final name.
    partial = out.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, reader.fields["general.architecture"].contents())
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{type_name}"])
    for field in reader.fields.values():
        if not field.name.startswith(_OWN_FIELDS):
            kinds = field.types
            inner = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kinds[0], sub_type=inner)
    for name, data, kind in _tensors(reader, gguf.GGMLQuantizationType[type_name]):
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, out)
    return out


def type_of(file: Path) -> str:
    """Return what most of a file's matrices are stored as, such as "Q4_1"."""
    kinds = [tensor.tensor_type.name for tensor in gguf.GGUFReader(file).tensors]
    matrices: set[str] = set(kinds) - {"F32"}
    return max(matrices or {"F32"}, key=kinds.count)


def _tensors(reader: Any, kind: Any) -> Iterator[tuple[str, np.ndarray, Any]]:
    for tensor in reader.tensors:
        if len(tensor.shape) < 2:
            yield tensor.name, tensor.data, tensor.tensor_type
        else:
            values = dequantize(tensor.data, tensor.tensor_type)
            yield tensor.name, quantize(values, kind), kind
