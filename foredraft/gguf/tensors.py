"""Which tensors a model has, by llama.cpp's names and by transformers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foredraft.errors import WeightsError
from foredraft.gguf.architecture import Architecture, Dimensions
from foredraft.gguf.header import TensorInfo
from foredraft.gguf.rope import FACTORS


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor of the converted model; permuted_heads is 0 where its rows are in order."""

    source: str
    name: str
    shape: tuple[int, ...]
    permuted_heads: int = 0


def wanted_tensors(kind: Architecture, sizes: Dimensions) -> list[Wanted]:
    """Return the tensors of a model of these sizes."""
    hidden, vocabulary = sizes.hidden, sizes.vocabulary
    found = [
        Wanted("token_embd.weight", "model.embed_tokens.weight", (vocabulary, hidden)),
        Wanted("output_norm.weight", "model.norm.weight", (hidden,)),
    ]
    if not sizes.tied:
        found.append(Wanted("output.weight", "lm_head.weight", (vocabulary, hidden)))
    for layer in range(sizes.layers):
        found += _layer(kind, sizes, layer)
    return found


def _layer(kind: Architecture, sizes: Dimensions, layer: int) -> list[Wanted]:
    source, name = f"blk.{layer}.", f"model.layers.{layer}."
    hidden, wide, dim = sizes.hidden, sizes.intermediate, sizes.head_dim
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "attn_norm.weight": ("input_layernorm.weight", (hidden,)),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (hidden,)),
        "attn_output.weight": ("self_attn.o_proj.weight", (hidden, sizes.heads * dim)),
        "ffn_gate.weight": ("mlp.gate_proj.weight", (wide, hidden)),
        "ffn_up.weight": ("mlp.up_proj.weight", (wide, hidden)),
        "ffn_down.weight": ("mlp.down_proj.weight", (hidden, wide)),
    }
    found = [Wanted(source + a, name + b, shape) for a, (b, shape) in shapes.items()]
    for letter, heads in (("q", sizes.heads), ("k", sizes.kv_heads), ("v", sizes.kv_heads)):
        permuted = heads if kind.permuted and letter != "v" else 0
        own, theirs = f"{source}attn_{letter}", f"{name}self_attn.{letter}_proj"
        found.append(Wanted(f"{own}.weight", f"{theirs}.weight", (heads * dim, hidden), permuted))
        if kind.bias:
            found.append(Wanted(f"{own}.bias", f"{theirs}.bias", (heads * dim,), permuted))
        if kind.head_norms and letter != "v":
            norm = f"{name}self_attn.{letter}_norm.weight"
            found.append(Wanted(f"{own}_norm.weight", norm, (dim,)))
    return found


def check_tensors(wanted: list[Wanted], tensors: Mapping[str, TensorInfo]) -> None:
    """Raise WeightsError naming the first tensor that is missing, misshapen or unexpected."""
    for each in wanted:
        found = tensors.get(each.source)
        if found is None:
            raise WeightsError(f"the tensor {each.source} is missing")
        if found.shape != each.shape:
            raise WeightsError(
                f"the tensor {each.source} has shape {list(found.shape)}, not {list(each.shape)}"
            )
    for name in tensors.keys() - {each.source for each in wanted} - {FACTORS}:
        raise WeightsError(f"the tensor {name} is not one that this architecture has")
