"""The architectures that are converted, and a model's dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foredraft.errors import WeightsError
from foredraft.gguf.header import TensorInfo
from foredraft.gguf.metadata import Metadata

_MOST = 1 << 24


@dataclass(frozen=True, slots=True)
class Architecture:
    """What tells one architecture's tensors from another's."""

    name: str
    model_class: str
    # llama.cpp stores the rows of q and k in its own order.
    permuted: bool = False
    # q, k and v have biases.
    bias: bool = False
    # Each head of q and k is normalized.
    head_norms: bool = False


ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture("llama", "LlamaForCausalLM", permuted=True),
        Architecture("qwen2", "Qwen2ForCausalLM", bias=True),
        Architecture("qwen3", "Qwen3ForCausalLM", head_norms=True),
    )
}

# Keys below the architecture's name that are read, here or in rope.py, and those that must be 0.
_READ = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
    "attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
}  # fmt: skip
_ZERO = ("expert_count", "expert_used_count")


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A decoder's sizes."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_len: int
    norm_eps: float
    tied: bool


def architecture(metadata: Metadata) -> Architecture:
    """Return the file's architecture; raise WeightsError naming one that is not supported.

    A key of the architecture that is not known is refused too: it may change what is computed.
    """
    name = metadata.text("general.architecture")
    found = ARCHITECTURES.get(name)
    if found is None:
        raise WeightsError(
            f"the architecture {name!r} is not supported, only {', '.join(ARCHITECTURES)}"
        )
    for key in metadata.under(f"{name}."):
        short = key.removeprefix(f"{name}.")
        if short in _ZERO:
            metadata.integer(key, most=0, least=0)
        elif short not in _READ:
            raise WeightsError(f"the metadata key {key} is not supported")
    return found


def dimensions(name: str, metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Dimensions:
    """Return the model's sizes; raise WeightsError naming the key that does not fit the others."""

    def size(key: str, default: int | None = None) -> int:
        return metadata.integer(f"{name}.{key}", _MOST, default)

    hidden, heads = size("embedding_length"), size("attention.head_count")
    kv_heads = size("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise WeightsError(f"{name}.attention.head_count_kv does not divide the head count {heads}")
    rotary = metadata.integer(f"{name}.rope.dimension_count", _MOST, max(hidden // heads, 1))
    head_dim = size("attention.key_length", rotary)
    for key in ("attention.value_length", "rope.dimension_count"):
        if size(key, head_dim) != head_dim:
            raise WeightsError(f"{name}.{key} differs from the head size {head_dim}")
    if head_dim % 2:
        raise WeightsError(f"the head size {head_dim} is odd")
    layers = size("block_count")
    # Before anything of this length is made.
    if layers > len(tensors):
        raise WeightsError(f"{name}.block_count is {layers}, and there are {len(tensors)} tensors")
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise WeightsError("the tensor token_embd.weight is missing")
    rows = embedding.shape[0]
    if size("vocab_size", rows) != rows:
        raise WeightsError(f"{name}.vocab_size differs from the {rows} rows of token_embd.weight")
    return Dimensions(
        layers=layers,
        hidden=hidden,
        intermediate=size("feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=rows,
        max_len=metadata.integer(f"{name}.context_length", 1 << 30, least=2),
        norm_eps=metadata.positive(f"{name}.attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in tensors,
    )
