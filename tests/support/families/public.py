"""Tiny checkpoints of the families on Llama's and Qwen's layers, and their references.

The references are transformers' Qwen2, Qwen3 and Llama.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from drafter_service.config import DrafterConfig

VOCAB, MASK, EOS = 96, 90, 0
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
}
HF_FIELDS = {
    **{key: value for key, value in SIZES.items() if key != "attn_implementation"},
    "rope_theta": 10_000.0,
    "mask_token_id": MASK,
    "eos_token_id": EOS,
}


@dataclass(frozen=True)
class Case:
    """A family's checkpoint: its config.json, its reference, how that is shifted and blocked."""

    config: dict[str, Any]
    reference: Any
    shift: int = 0
    block: int = 0
    olmo: bool = False
    family: str | None = None


def qwen2(**fields: Any) -> Any:
    return Qwen2ForCausalLM(Qwen2Config(**SIZES | fields, rope_theta=10_000.0))


CASES = {
    "dream": Case(HF_FIELDS | {"model_type": "Dream"}, qwen2, shift=1),
    "dream, tied": Case(
        HF_FIELDS | {"model_type": "Dream", "tie_word_embeddings": True},
        partial(qwen2, tie_word_embeddings=True),
        shift=1,
    ),
    "llada": Case(
        {
            "model_type": "llada",
            "block_type": "llama",
            "d_model": 32,
            "n_layers": 2,
            "n_heads": 4,
            "n_kv_heads": 2,
            "mlp_hidden_size": 48,
            "vocab_size": VOCAB - 2,
            "embedding_size": VOCAB,
            "max_sequence_length": 64,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10_000.0,
            "weight_tying": False,
            "mask_token_id": MASK,
            "eos_token_id": EOS,
        },
        lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_theta=10_000.0)),
        olmo=True,
    ),
    "sdar": Case(
        HF_FIELDS | {"model_type": "sdar", "head_dim": 16, "block_size": 4},
        lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16, rope_theta=10_000.0)),
        block=4,
    ),
    "open_dcoder": Case(HF_FIELDS | {"model_type": "qwen2"}, qwen2, shift=1, family="open_dcoder"),
    "fast_dllm_v2": Case(
        HF_FIELDS | {"model_type": "Fast_dLLM_Qwen", "bd_size": 8}, qwen2, shift=1, block=8
    ),
}
OLMO = {
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "model.layers": "model.transformer.blocks",
    "model.embed_tokens": "model.transformer.wte",
    "model.norm": "model.transformer.ln_f",
    "lm_head": "model.transformer.ff_out",
}


def write(case: Case, folder: Path) -> Any:
    """Write a checkpoint with random weights, in two files; return its reference."""
    torch.manual_seed(3)
    reference = case.reference().eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.normal_(0, 0.3)
    state = {name: value.clone() for name, value in reference.state_dict().items()}
    if case.config.get("tie_word_embeddings"):
        state.pop("lm_head.weight")
    if case.olmo:
        for old, new in OLMO.items():
            state = {name.replace(old, new): value for name, value in state.items()}
    names = sorted(state)
    folder.mkdir()
    for part, chosen in enumerate((names[::2], names[1::2]), start=1):
        file = folder / f"model-0000{part}-of-00002.safetensors"
        save_file({name: state[name] for name in chosen}, file)
    (folder / "config.json").write_text(json.dumps(case.config))
    return reference


def config_of(case: Case, folder: Path, **fields: Any) -> DrafterConfig:
    """A configuration that serves the case's checkpoint in fp32."""
    return DrafterConfig(model=folder, family=case.family, dtype="float32", **fields)


def expected(case: Case, reference: Any, text: list[int], slots: list[int]) -> torch.Tensor:
    """The logits [slots, vocabulary] of mask slots behind text; slots hold MASK or a token."""
    row = [*text, *slots]
    n = len(row)
    mask = torch.zeros(1, 1, n, n)
    for i in range(n):
        for j in range(n):
            if case.block and j // case.block > i // case.block:
                mask[0, 0, i, j] = torch.finfo(torch.float32).min
    with torch.no_grad():
        logits = reference(torch.tensor([row]), attention_mask=mask).logits[0]
    if case.shift:
        logits = torch.cat((logits[:1], logits[:-1]))
    return logits[len(text) :]
