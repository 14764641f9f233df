"""Tiny checkpoints with random weights, each in its family's own format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

VOCAB, MASK, EOS = 96, 95, 0
MDLM = {
    "architectures": ["MDLM"],
    "auto_map": {
        "AutoConfig": "configuration_mdlm.MDLMConfig",
        "AutoModelForMaskedLM": "modeling_mdlm.MDLM",
    },
    "cond_dim": 12,
    "dropout": 0.1,
    "eos_token_id": EOS,
    "hidden_dim": 32,
    "model_length": 64,
    "model_type": "mdlm",
    "n_blocks": 2,
    "n_heads": 4,
    "return_dict": False,
    "time_conditioning": False,
    "torch_dtype": "float32",
    "vocab_size": VOCAB,
}


def write_mdlm(folder: Path, **fields: Any) -> dict[str, torch.Tensor]:
    """Write a checkpoint as kuleshov-group/mdlm-owt is; return its weights."""
    config = MDLM | fields
    hidden, cond, vocab = 32, 12, VOCAB
    shapes: dict[str, tuple[int, ...]] = {
        "vocab_embed.embedding": (vocab, hidden),
        "sigma_map.mlp.0.weight": (cond, 256),
        "sigma_map.mlp.0.bias": (cond,),
        "sigma_map.mlp.2.weight": (cond, cond),
        "sigma_map.mlp.2.bias": (cond,),
        "rotary_emb.inv_freq": (4,),
        "output_layer.norm_final.weight": (hidden,),
        "output_layer.linear.weight": (vocab, hidden),
        "output_layer.linear.bias": (vocab,),
        "output_layer.adaLN_modulation.weight": (2 * hidden, cond),
        "output_layer.adaLN_modulation.bias": (2 * hidden,),
    }
    for block in range(2):
        shapes |= {
            f"blocks.{block}.{name}": shape
            for name, shape in {
                "norm1.weight": (hidden,),
                "attn_qkv.weight": (3 * hidden, hidden),
                "attn_out.weight": (hidden, hidden),
                "norm2.weight": (hidden,),
                "mlp.0.weight": (4 * hidden, hidden),
                "mlp.0.bias": (4 * hidden,),
                "mlp.2.weight": (hidden, 4 * hidden),
                "mlp.2.bias": (hidden,),
                "adaLN_modulation.weight": (6 * hidden, cond),
                "adaLN_modulation.bias": (6 * hidden,),
            }.items()
        }
    generator = torch.Generator().manual_seed(5)
    weights = {
        f"backbone.{name}": torch.randn(shape, generator=generator) * 0.2
        for name, shape in shapes.items()
    }
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return weights


CANVAS, WINDOW = 12, 6
TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 24,
    "num_global_key_value_heads": 1,
    "max_position_embeddings": 64,
    "sliding_window": WINDOW,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 16,
    "eos_token_id": [EOS, 3],
}
VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "position_embedding_size": 16,
}


def write_diffusion_gemma(folder: Path) -> DiffusionGemmaForBlockDiffusion:
    """Write a checkpoint by transformers, in several files; return its model."""
    config = DiffusionGemmaConfig(text_config=TEXT, vision_config=VISION, canvas_length=CANVAS)
    torch.manual_seed(3)
    model = DiffusionGemmaForBlockDiffusion(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.uniform_(0.5, 1.5)
    model.save_pretrained(folder, max_shard_size="100KB")
    return model
