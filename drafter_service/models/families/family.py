"""The differences between the families of diffusion LMs, and their checkpoints' configurations.

    family        noise    logit shift  attention      weights' names
    dream         mask id  1            full           Qwen2
    llada         mask id  0            full           OLMo
    sdar          mask id  0            block-causal   Qwen3
    open_dcoder   mask id  1            full           Qwen2
    fast_dllm_v2  mask id  1            block-causal   Qwen2
    mdlm          mask id  0            full           its own

DiffusionGemma, whose noise is no mask, has an adapter of its own (diffusion_gemma.py).
Shift 1: a token is read one row earlier, so a block's first one is read at the prefix's last row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from drafter_service.models.families.decoder import Decoder, DecoderConfig
from drafter_service.models.families.dit import Dit, DitConfig


@dataclass(frozen=True, slots=True)
class Family:
    """How one family reads and is read. shift is where a token's logits are: rows before its own.

    block_size names the configuration's field with the length of a block that sees itself whole;
    None is full attention. names maps a checkpoint's weight names to the network's. The token ids
    stand in where the configuration has none; a negative one counts from the vocabulary's end.
    """

    name: str
    shift: int
    config: Callable[[Mapping[str, Any]], DecoderConfig | DitConfig]
    names: Callable[[str], str]
    block_size: str | None = None
    mask_token_id: int | None = None
    eos_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class FamilyModel:
    """One checkpoint of a family: block is the length of its attention blocks, 0 if full."""

    family: Family
    sizes: DecoderConfig | DitConfig
    mask_token_id: int
    eos_token_id: int
    block: int

    def network(self, weights: Mapping[str, Tensor]) -> Decoder | Dit:
        """Return the network over the weights; raise ValueError if they do not fit it."""
        if isinstance(self.sizes, DitConfig):
            return Dit.of(self.sizes, weights)
        return Decoder.of(self.sizes, weights)


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


def _mdlm(raw: Mapping[str, Any]) -> DitConfig:
    """Return the sizes of MDLM's configuration."""
    heads, hidden = raw["n_heads"], raw["hidden_dim"]
    if hidden % (2 * heads):
        raise ValueError(f"hidden_dim {hidden} is no even multiple of n_heads {heads}")
    return DitConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=hidden,
        cond_size=raw["cond_dim"],
        num_blocks=raw["n_blocks"],
        num_heads=heads,
        max_len=raw["model_length"],
        time_conditioning=raw["time_conditioning"],
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


_MDLM_ENDS = {
    "vocab_embed.embedding": "embed_tokens.weight",
    "output_layer.linear.weight": "lm_head.weight",
    "output_layer.linear.bias": "lm_head.bias",
}


def _from_mdlm(name: str) -> str:
    own = name.removeprefix("backbone.")
    return _MDLM_ENDS.get(own, own)


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
        # The mask is appended to the tokenizer's vocabulary, which is GPT-2's.
        Family("mdlm", 0, _mdlm, _from_mdlm, mask_token_id=-1, eos_token_id=50_256),
    )
}
# model_type of a checkpoint's configuration, where it names the family.
_MODEL_TYPES = {
    "Dream": "dream",
    "llada": "llada",
    "sdar": "sdar",
    "Fast_dLLM_Qwen": "fast_dllm_v2",
    "mdlm": "mdlm",
}


def read_family(raw: Mapping[str, Any], name: str | None, mask_token_id: int | None) -> FamilyModel:
    """Return a checkpoint's config.json, as family `name` if that is given.

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
        sizes = family.config(raw)
        block = int(raw[family.block_size]) if family.block_size else 0
    except KeyError as error:
        raise ValueError(f"config.json of a {name} model lacks {error.args[0]}") from None
    mask = mask_token_id if mask_token_id is not None else raw.get("mask_token_id")
    if mask is None and family.mask_token_id is not None:
        mask = family.mask_token_id + (sizes.vocab_size if family.mask_token_id < 0 else 0)
    if mask is None:
        raise ValueError(f"config.json of a {name} model has no mask_token_id: set it")
    eos = raw.get("eos_token_id", family.eos_token_id)
    eos = eos[0] if isinstance(eos, list) else eos
    if eos is None:
        raise ValueError(f"config.json of a {name} model has no eos_token_id")
    for field, token in (("mask_token_id", mask), ("eos_token_id", eos)):
        if not 0 <= token < sizes.vocab_size:
            raise ValueError(f"{field} {token} is outside the vocabulary of {sizes.vocab_size}")
    return FamilyModel(family, sizes, mask, eos, block)
