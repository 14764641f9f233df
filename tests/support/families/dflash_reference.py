"""DFlash written out row by row and head by head, in fp64, and what it is asked about."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from drafter_service.config import DrafterConfig
from tests.support.families.dflash import (
    BLOCK,
    EPS,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    MASK,
    THETA,
)

Weights = dict[str, torch.Tensor]


def random_features(tokens: int, seed: int = 5) -> torch.Tensor:
    """Features that bfloat16 holds exactly."""
    values = torch.randn(tokens, HIDDEN, generator=torch.Generator().manual_seed(seed))
    return values.bfloat16().float()


def config_of(drafter: Path, target: Path | None, **fields: Any) -> DrafterConfig:
    return DrafterConfig(model=drafter, target=target, dtype="float32", **fields)


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean() + EPS).sqrt() * weight


def turned(x: torch.Tensor, position: int) -> torch.Tensor:
    """Rotary positions of one head's vector, pair by pair."""
    out, half = x.clone(), HEAD_DIM // 2
    for i in range(half):
        angle = position / THETA ** (2 * i / HEAD_DIM)
        cos, sin = math.cos(angle), math.sin(angle)
        out[i] = x[i] * cos - x[i + half] * sin
        out[i + half] = x[i + half] * cos + x[i] * sin
    return out


def reference(weights: Weights, own: Weights, features: torch.Tensor, anchor: int) -> torch.Tensor:
    """Logits [BLOCK - 1, VOCAB] of the masks after an anchor, features [n, hidden] before it."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    before = features.double()
    start = len(before)
    embedding = own["model.embed_tokens.weight"].double()
    rows = [embedding[token] for token in [anchor] + [MASK] * (BLOCK - 1)]
    for layer in range(LAYERS):
        p = f"layers.{layer}."
        normed = [norm(row, w[p + "input_layernorm.weight"]) for row in rows]
        keys, values = [], []
        for position, row in enumerate([*before, *normed]):
            k = (w[p + "self_attn.k_proj.weight"] @ row).view(KV_HEADS, HEAD_DIM)
            k = [turned(norm(head, w[p + "self_attn.k_norm.weight"]), position) for head in k]
            keys.append(k)
            values.append((w[p + "self_attn.v_proj.weight"] @ row).view(KV_HEADS, HEAD_DIM))
        for at, row in enumerate(normed):
            q = (w[p + "self_attn.q_proj.weight"] @ row).view(HEADS, HEAD_DIM)
            mixed = []
            for head in range(HEADS):
                query = turned(norm(q[head], w[p + "self_attn.q_norm.weight"]), start + at)
                shared = head // (HEADS // KV_HEADS)
                scores = torch.stack([query @ key[shared] for key in keys]) / HEAD_DIM**0.5
                share = scores.softmax(0)
                mixed.append(sum(s * v[shared] for s, v in zip(share, values, strict=True)))
            rows[at] = rows[at] + w[p + "self_attn.o_proj.weight"] @ torch.cat(mixed)
        for at, row in enumerate(rows):
            x = norm(row, w[p + "post_attention_layernorm.weight"])
            gate, up = w[p + "mlp.gate_proj.weight"] @ x, w[p + "mlp.up_proj.weight"] @ x
            rows[at] = row + w[p + "mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up)
    head = own["lm_head.weight"].double()
    return torch.stack([head @ norm(row, w["norm.weight"]) for row in rows[1:]]).float()
