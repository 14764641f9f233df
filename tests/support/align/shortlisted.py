"""Small random drafters with a shortlist, and a target's rows for them: one is anchored and reads
features, one is neither.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM

CONFIG = BlockCausalConfig(
    192,
    128,
    2,
    192,
    edge_rank=40,
    max_position_embeddings=128,
    shortlist_size=64,
    target_layer_ids=(0, 2),
    anchored=True,
)
TOKENS_ALONE = replace(CONFIG, target_layer_ids=(), anchored=False)
TEXT = [int(t) for t in np.random.default_rng(0).integers(2, 192, 100)]
STATES = np.random.default_rng(1).normal(size=(100, 2 * 128)).astype(np.float32)


def network(config: BlockCausalConfig = CONFIG) -> BlockCausalDLM:
    """Return the network; its shortlist is every third token, EOS (0) among them."""
    torch.manual_seed(0)
    built = BlockCausalDLM(config)
    built.set_shortlist(torch.arange(0, 192, 3))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
        if config.target_layer_ids:
            built.hidden_norm.weight.uniform_(0.05, 0.15)
        built.norm.weight.uniform_(1.0, 2.0)
        assert built.head is not None
        built.head.weight.copy_(built.embedding.weight[built.token_ids])
    return built.requires_grad_(False).eval()


def features(built: BlockCausalDLM, count: int) -> bytes:
    """Return the features of the text's first tokens as they travel."""
    fused = built.fused(torch.from_numpy(STATES[:count])).to(torch.bfloat16)
    return fused.view(torch.int16).numpy().tobytes()


def write_target(folder: Path, built: BlockCausalDLM) -> Path:
    """Write the part of a target's folder that a drafter reads."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    weights = {"model.embed_tokens.weight": built.embedding.weight.clone()}
    save_file(weights, folder / "model.safetensors")
    return folder
