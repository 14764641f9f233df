"""A GGUF file, converted to a folder of transformers' files with weights in bfloat16."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.errors import WeightsError
from foredraft.gguf.architecture import Architecture, Dimensions, architecture, dimensions
from foredraft.gguf.header import GgufFile, read_header
from foredraft.gguf.metadata import Metadata
from foredraft.gguf.progress import Progress
from foredraft.gguf.rope import FACTORS, rope_parameters
from foredraft.gguf.tensors import check_tensors, wanted_tensors
from foredraft.gguf.tokenizer import tokenizer_config, tokenizer_json
from foredraft.gguf.vocabulary import Vocabulary, read_vocabulary
from foredraft.gguf.weights import check_types, values, write_weights


def convert(gguf_file: Path, folder: Path, progress: Progress) -> None:
    """Convert a file to a folder, which must not exist and appears only when it is complete.

    Raise WeightsError naming what of the file cannot be used, before anything is written unless a
    weight is not finite.
    """
    if folder.exists():
        raise WeightsError(f"{folder} exists already")
    file = read_header(gguf_file)
    metadata = Metadata(file.metadata)
    kind = architecture(metadata)
    check_types(file.tensors.values())
    sizes = dimensions(kind.name, metadata, file.tensors)
    wanted = wanted_tensors(kind, sizes)
    check_tensors(wanted, file.tensors)
    rope = rope_parameters(kind.name, metadata, sizes.head_dim, _rope_factors(file))
    vocabulary = read_vocabulary(metadata, sizes.vocabulary)
    documents = {
        "config.json": _indented(_config(kind, sizes, rope, vocabulary)),
        "generation_config.json": _indented(_generation(vocabulary)),
        "tokenizer.json": tokenizer_json(vocabulary),
        "tokenizer_config.json": _indented(tokenizer_config(vocabulary, sizes.max_len)),
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            write_weights(file, wanted, partial / "model.safetensors", progress)
            for name, text in documents.items():
                (partial / name).write_text(text)
            partial.chmod(0o755)
            os.rename(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise WeightsError(f"{folder} cannot be written: {error.strerror}") from None


def _indented(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _rope_factors(file: GgufFile) -> np.ndarray | None:
    found = file.tensors.get(FACTORS)
    if found is None:
        return None
    if len(found.shape) != 1:
        raise WeightsError(f"the tensor {FACTORS} has {len(found.shape)} dimensions, not 1")
    return np.concatenate([piece.reshape(-1) for piece in values(file, found)])


def _config(
    kind: Architecture, sizes: Dimensions, rope: dict[str, Any], vocabulary: Vocabulary
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "architectures": [kind.model_class],
        "model_type": kind.name,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "max_position_embeddings": sizes.max_len,
        "rms_norm_eps": sizes.norm_eps,
        "rope_parameters": rope,
        "tie_word_embeddings": sizes.tied,
        "vocab_size": sizes.vocabulary,
        "dtype": "bfloat16",
    }
    if kind.name != "qwen2":
        found["attention_bias"] = False
    if kind.name == "llama":
        found["mlp_bias"] = False
    else:
        found["use_sliding_window"] = False
    return found | _generation(vocabulary)


def _generation(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the ids that begin, end and pad a text, without those that the file does not name."""
    ends = list(vocabulary.ends)
    found: dict[str, Any] = {
        "bos_token_id": vocabulary.special.get("bos"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": vocabulary.special.get("pad"),
    }
    return {key: value for key, value in found.items() if value is not None}
