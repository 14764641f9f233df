"""A tiny DFlash drafter in the format of the public checkpoints, and a Qwen3 target for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB, MASK, EOS = 24, 23, 0
BLOCK, LAYERS, TARGET_LAYERS = 8, 2, (0, 2)
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 32, 4, 2, 16, 48
THETA, EPS = 10_000.0, 1e-6

# As in the public config.json, but for the sizes.
CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
    "block_size": BLOCK,
    "bos_token_id": EOS,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(TARGET_LAYERS)},
    "dtype": "bfloat16",
    "eos_token_id": EOS,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "layer_types": ["full_attention"] * LAYERS,
    "max_position_embeddings": 160,
    "max_window_layers": LAYERS,
    "model_type": "qwen3",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "num_target_layers": 3,
    "rms_norm_eps": EPS,
    "rope_scaling": None,
    "rope_theta": THETA,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCAB,
}


def write_target(folder: Path) -> Path:
    """Write a Qwen3 checkpoint of three layers with random weights."""
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=160,
        rope_theta=THETA,
        initializer_range=0.3,
        tie_word_embeddings=False,
        eos_token_id=EOS,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def write_drafter(folder: Path, seed: int = 2, **changes: Any) -> dict[str, torch.Tensor]:
    """Write a DFlash checkpoint with random weights, in two files; return the weights."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * 0.3

    weights = {
        "fc.weight": random(HIDDEN, len(TARGET_LAYERS) * HIDDEN),
        "hidden_norm.weight": 1 + random(HIDDEN),
        "norm.weight": 1 + random(HIDDEN),
    }
    for layer in range(LAYERS):
        weights |= {
            f"layers.{layer}.{name}.weight": tensor
            for name, tensor in {
                "self_attn.q_proj": random(HEADS * HEAD_DIM, HIDDEN),
                "self_attn.k_proj": random(KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj": random(KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj": random(HIDDEN, HEADS * HEAD_DIM),
                "self_attn.q_norm": 1 + random(HEAD_DIM),
                "self_attn.k_norm": 1 + random(HEAD_DIM),
                "mlp.gate_proj": random(INNER, HIDDEN),
                "mlp.up_proj": random(INNER, HIDDEN),
                "mlp.down_proj": random(HIDDEN, INNER),
                "input_layernorm": 1 + random(HIDDEN),
                "post_attention_layernorm": 1 + random(HIDDEN),
            }.items()
        }
    names = sorted(weights)
    folder.mkdir(parents=True)
    for part, chosen in enumerate((names[::2], names[1::2]), start=1):
        file = folder / f"model-0000{part}-of-00002.safetensors"
        save_file({name: weights[name] for name in chosen}, file)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return weights


def fused(target: Path, weights: dict[str, torch.Tensor], text: list[int]) -> torch.Tensor:
    """The features [tokens, hidden] of a text, by transformers' output_hidden_states, in fp32."""
    model = Qwen3ForCausalLM.from_pretrained(target, dtype=torch.float32)
    with torch.inference_mode():
        states = model(torch.tensor([text]), output_hidden_states=True).hidden_states
    # Counted with the embeddings first.
    side_by_side = torch.cat([states[layer + 1][0] for layer in TARGET_LAYERS], dim=-1)
    mixed = side_by_side @ weights["fc.weight"].T
    scale = (mixed.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    return mixed * scale * weights["hidden_norm.weight"]


def as_bytes(features: torch.Tensor) -> bytes:
    """Features as they travel."""
    return features.bfloat16().view(torch.int16).numpy().tobytes()


def as_tensor(data: bytes, width: int = HIDDEN) -> torch.Tensor:
    """Features that travelled, in fp32."""
    return torch.frombuffer(bytearray(data), dtype=torch.bfloat16).view(-1, width).float()
