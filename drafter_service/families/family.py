"""What tells the families of diffusion LMs apart, and their checkpoints' configurations.

    family        noise    logit shift  attention      weights' names
    dream         mask id  1            full           Qwen2
    llada         mask id  0            full           OLMo
    sdar          mask id  0            block-causal   Qwen3
    open_dcoder   mask id  1            full           Qwen2
    fast_dllm_v2  mask id  1            block-causal   Qwen2

Shift 1: a token is read one row earlier, so a block's first one is read at the prefix's last row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drafter_service.families.decoder import DecoderConfig


@dataclass(frozen=True, slots=True)
class Family:
    """How one family reads and is read. shift is where a token's logits are: rows before its own.

    block_size names the configuration's field with the length of a block that sees itself whole;
    None is full attention. names maps a checkpoint's weight names to the decoder's.
    """

    name: str
    shift: int
    config: Callable[[Mapping[str, Any]], DecoderConfig]
    names: Callable[[str], str]
    block_size: str | None = None
    mask_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class FamilyModel:
    """One checkpoint of a family: block is the length of its attention blocks, 0 if full."""

    family: Family
    decoder: DecoderConfig
    mask_token_id: int
    eos_token_id: int
    block: int


def _hugging_face(raw: Mapping[str, Any], *, qkv_bias: bool, qk_norm: bool) -> DecoderConfig:
    """Return the sizes of a configuration with transformers' field names."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"rotary positions of type {kind!r} are not supported")
    heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
    return DecoderConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=hidden,
        num_layers=raw["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or hidden // heads,
        intermediate_size=raw["intermediate_size"],
        rope_theta=float(raw.get("rope_theta") or rope["rope_theta"]),
        rms_eps=raw["rms_norm_eps"],
        max_len=raw["max_position_embeddings"],
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
        tied=raw.get("tie_word_embeddings", False),
    )


def _qwen2(raw: Mapping[str, Any]) -> DecoderConfig:
    return _hugging_face(raw, qkv_bias=True, qk_norm=False)


def qwen3(raw: Mapping[str, Any]) -> DecoderConfig:
    """Return the sizes of a configuration with Qwen3's fields."""
    return _hugging_face(raw, qkv_bias=False, qk_norm=True)


def _olmo(raw: Mapping[str, Any]) -> DecoderConfig:
    """Return the sizes of LLaDA's configuration, whose fields are OLMo's."""
    if raw.get("block_type", "llama") != "llama":
        raise ValueError(f"LLaDA blocks of type {raw['block_type']!r} are not supported")
    heads, hidden = raw["n_heads"], raw["d_model"]
    return DecoderConfig(
        vocab_size=raw.get("embedding_size") or raw["vocab_size"],
        hidden_size=hidden,
        num_layers=raw["n_layers"],
        num_heads=heads,
        num_kv_heads=raw.get("n_kv_heads") or heads,
        head_dim=hidden // heads,
        intermediate_size=raw["mlp_hidden_size"],
        rope_theta=float(raw["rope_theta"]),
        rms_eps=raw["rms_norm_eps"],
        max_len=raw["max_sequence_length"],
        qkv_bias=raw.get("include_qkv_bias", False),
        tied=raw.get("weight_tying", False),
    )


def _as_transformers(name: str) -> str:
    return name.removeprefix("model.")


_OLMO_PARTS = {
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
}
_OLMO_ENDS = {"wte": "embed_tokens", "ln_f": "norm", "ff_out": "lm_head"}


def _from_olmo(name: str) -> str:
    """Return the decoder's name of a weight such as model.transformer.blocks.0.attn_out.weight."""
    *path, kind = name.removeprefix("model.").removeprefix("transformer.").split(".")
    if path[:1] == ["blocks"] and len(path) == 3:
        return f"layers.{path[1]}.{_OLMO_PARTS.get(path[2], path[2])}.{kind}"
    return ".".join([_OLMO_ENDS.get(path[0], path[0]) if path else "", kind])


FAMILIES = {
    family.name: family
    for family in (
        Family("dream", 1, _qwen2, _as_transformers),
        Family("llada", 0, _olmo, _from_olmo, mask_token_id=126_336),
        Family("sdar", 0, qwen3, _as_transformers, block_size="block_size"),
        Family("open_dcoder", 1, _qwen2, _as_transformers),
        Family(
            "fast_dllm_v2", 1, _qwen2, _as_transformers, block_size="bd_size", mask_token_id=151_665
        ),
    )
}
# model_type of a checkpoint's configuration, where it tells the family.
_MODEL_TYPES = {
    "Dream": "dream",
    "llada": "llada",
    "sdar": "sdar",
    "Fast_dLLM_Qwen": "fast_dllm_v2",
}


def read_family(raw: Mapping[str, Any], name: str | None, mask_token_id: int | None) -> FamilyModel:
    """Return what a checkpoint's config.json says, as family `name` if that is given.

    Raise ValueError where it names no family that is known, or lacks a field.
    """
    name = name or _MODEL_TYPES.get(raw.get("model_type", ""))
    if name is None:
        raise ValueError(
            f"model_type {raw.get('model_type')!r} names no family of diffusion models; "
            f"set family to one of {', '.join(FAMILIES)}"
        )
    family = FAMILIES[name]
    try:
        decoder = family.config(raw)
        block = int(raw[family.block_size]) if family.block_size else 0
        eos = raw["eos_token_id"]
    except KeyError as error:
        raise ValueError(f"config.json of a {name} model lacks {error.args[0]}") from None
    mask = mask_token_id if mask_token_id is not None else raw.get("mask_token_id")
    mask = family.mask_token_id if mask is None else mask
    if mask is None:
        raise ValueError(f"config.json of a {name} model has no mask_token_id: set it")
    eos = eos[0] if isinstance(eos, list) else eos
    if eos is None:
        raise ValueError(f"config.json of a {name} model has no eos_token_id")
    for field, token in (("mask_token_id", mask), ("eos_token_id", eos)):
        if not 0 <= token < decoder.vocab_size:
            raise ValueError(f"{field} {token} is outside the vocabulary of {decoder.vocab_size}")
    return FamilyModel(family, decoder, mask, eos, block)
