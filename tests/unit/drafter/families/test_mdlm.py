"""MDLM: a tiny checkpoint in its own format against a slow forward, one number at a time."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_model
from drafter_service.models.families.adapter import FamilyDrafter
from drafter_service.models.port import BlockRequest
from foredraft.errors import WeightsError
from tests.support.families.own_formats import EOS, MASK, VOCAB, write_mdlm

Weights = dict[str, Any]
TEXTS = [([5, 9, 33, 7, 12], [MASK] * 6), ([3], [MASK, 44, MASK]), ([8, 2, 61], [MASK])]


def requests_of(texts: list[tuple[list[int], list[int]]]) -> list[BlockRequest]:
    return [
        BlockRequest(at, 0, text, len(slots), [-1 if s == MASK else s for s in slots])
        for at, (text, slots) in enumerate(texts)
    ]


def norm(x: Any, weight: Any) -> Any:
    return (x - x.mean()) / math.sqrt(x.var() + 1e-5) * weight


def turned(x: Any, position: int) -> Any:
    """Rotate each pair (i, i + half) of one head's vector."""
    half, out = len(x) // 2, np.empty_like(x)
    for i in range(half):
        angle = position * 10_000.0 ** (-2 * i / len(x))
        c, s = math.cos(angle), math.sin(angle)
        out[i], out[half + i] = x[i] * c - x[half + i] * s, x[half + i] * c + x[i] * s
    return out


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def reference(weights: dict[str, torch.Tensor], row: list[int], sigma: float) -> Any:
    """The logits [row, vocabulary] at noise level sigma: models/dit.py of the public code."""
    w = {name.removeprefix("backbone."): t.double().numpy() for name, t in weights.items()}

    def linear(name: str, x: Any) -> Any:
        return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0.0)

    waves = [sigma * math.exp(-math.log(10_000) * i / 128) for i in range(128)]
    told = np.array([math.cos(a) for a in waves] + [math.sin(a) for a in waves])
    condition = silu(linear("sigma_map.mlp.2", silu(linear("sigma_map.mlp.0", told))))
    x = [w["vocab_embed.embedding"][token] for token in row]
    for block in range(2):
        at = f"blocks.{block}"
        shift, scale, gate, shift2, scale2, gate2 = np.split(
            linear(f"{at}.adaLN_modulation", condition), 6
        )
        heads = []
        for position, each in enumerate(x):
            normed = norm(each, w[f"{at}.norm1.weight"]) * (1 + scale) + shift
            q, k, v = linear(f"{at}.attn_qkv", normed).reshape(3, 4, 8)
            heads.append(([turned(h, position) for h in q], [turned(h, position) for h in k], v))
        for i, (q, _, _) in enumerate(heads):
            mixed = []
            for head in range(4):
                odds = np.exp([q[head] @ k[head] / math.sqrt(8) for _, k, _ in heads])
                mixed.append(sum(o * v[head] for o, (_, _, v) in zip(odds, heads, strict=True)))
                mixed[-1] = mixed[-1] / odds.sum()
            x[i] = x[i] + gate * linear(f"{at}.attn_out", np.concatenate(mixed))
        for i, each in enumerate(x):
            normed = norm(each, w[f"{at}.norm2.weight"]) * (1 + scale2) + shift2
            x[i] = each + gate2 * linear(f"{at}.mlp.2", gelu(linear(f"{at}.mlp.0", normed)))
    shift, scale = np.split(linear("output_layer.adaLN_modulation", condition), 2)
    final = w["output_layer.norm_final.weight"]
    return np.array(
        [linear("output_layer.linear", norm(e, final) * (1 + scale) + shift) for e in x]
    )


def sigma_of(row: list[int]) -> float:
    """The log-linear noise's level at a time that is the row's share of masks."""
    time = sum(token == MASK for token in row) / len(row)
    return -math.log1p(-(1 - 1e-3) * time)


@pytest.mark.parametrize("time_conditioning", [False, True])
def test_logits_are_those_of_the_reference(time_conditioning: bool, tmp_path: Path) -> None:
    weights = write_mdlm(tmp_path / "model", time_conditioning=time_conditioning)
    drafter = load_model(DrafterConfig(model=tmp_path / "model", dtype="float32"))
    assert isinstance(drafter, FamilyDrafter)
    assert (drafter.capabilities.vocab_size, drafter.capabilities.max_len) == (VOCAB, 64)
    wanted = []
    for text, slots in TEXTS:
        row = [*text, *slots]
        sigma = sigma_of(row) if time_conditioning else 0.0
        wanted.append(torch.from_numpy(reference(weights, row, sigma)[len(text) :]).float())
    found = drafter.logits(requests_of(TEXTS))
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("time_conditioning", [False, True])
def test_sessions_in_one_pass_score_as_alone(time_conditioning: bool, tmp_path: Path) -> None:
    write_mdlm(tmp_path / "model", time_conditioning=time_conditioning)
    drafter = load_model(DrafterConfig(model=tmp_path / "model", dtype="float32", candidates=8))
    requests = requests_of(TEXTS)
    for together, request in zip(drafter.draft(requests), requests, strict=True):
        [alone] = drafter.draft([request])
        np.testing.assert_array_equal(together.tokens, alone.tokens)
        np.testing.assert_allclose(together.log_q, alone.log_q, atol=1e-5)
        assert MASK not in alone.tokens
        assert all(EOS in row for row in alone.tokens)


def test_sessions_may_be_kept_shorter_than_the_checkpoint_allows(tmp_path: Path) -> None:
    write_mdlm(tmp_path / "model", model_length=1024)
    drafter = load_model(DrafterConfig(model=tmp_path / "model", max_len=100))
    assert (drafter.capabilities.max_len, drafter.capabilities.cache_tokens) == (100, 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cond_dim": None}, "lacks cond_dim"),
        ({"time_conditioning": None}, "lacks time_conditioning"),
        ({"n_heads": 5}, "hidden_dim 32 is no even multiple of n_heads 5"),
        # Where none is told it is GPT-2's.
        ({"eos_token_id": None}, "eos_token_id 50256 is outside the vocabulary of 96"),
        ({"mask_token_id": VOCAB}, "mask_token_id 96 is outside the vocabulary"),
        ({"cond_dim": 8}, "adaLN_modulation.weight is"),
        ({"n_blocks": 3}, "missing weights .*blocks.2"),
    ],
)
def test_what_cannot_be_used_is_said(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_mdlm(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text()) | change
    told = {name: value for name, value in config.items() if value is not None}
    file.write_text(json.dumps(told))
    with pytest.raises(WeightsError, match=message):
        load_model(DrafterConfig(model=tmp_path / "model"))
