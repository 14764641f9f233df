"""The drafter network: exact prefix caching, mask semantics, edge head, strict loading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter_service.models.embedded.block_causal import (
    COMMITTED,
    BlockCausalConfig,
    BlockCausalDLM,
    read_config,
)

PREFIX, BLOCK = 23, 5


@pytest.fixture
def model() -> BlockCausalDLM:
    """A small random drafter in fp32."""
    torch.manual_seed(3)
    config = BlockCausalConfig(
        vocab_size=50, hidden_size=32, num_heads=2, intermediate_size=48, edge_rank=8, max_block=8
    )
    built = BlockCausalDLM(config)
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return built.requires_grad_(False)


def masked_attend(visible: Tensor):
    """attend over the given rows alone; visible is bool [rows, rows]."""

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, v)

    return attend


def full_visible(prefix: int, block: int) -> Tensor:
    """The mask semantics of one session: causal prefix, then a block that sees everything."""
    visible = torch.ones(prefix + block, prefix + block).tril().bool()
    visible[prefix:] = True
    return visible


def fresh_hidden(model: BlockCausalDLM, tokens: Tensor, block: int) -> Tensor:
    """States [len + block, hidden] of all tokens and a block after them, in one uncached pass."""
    n = len(tokens)
    return model.forward_rows(
        torch.cat((tokens, torch.zeros(block, dtype=torch.int64))),
        torch.arange(n + block),
        torch.cat((torch.full((n,), COMMITTED), torch.arange(block))),
        masked_attend(full_visible(n, block)),
    )


class CachedSession:
    """Feeds tokens in chunks, keeping the keys and values of committed rows only."""

    def __init__(self, model: BlockCausalDLM) -> None:
        self.model, self.length = model, 0
        self.keys: list[Tensor] = [torch.zeros(0, 2, 16) for _ in model.layers]
        self.values: list[Tensor] = [torch.zeros(0, 2, 16) for _ in model.layers]

    def step(self, tokens: Tensor, block: int) -> Tensor:
        """Commits tokens and returns the states of `block` mask slots after them."""
        new = len(tokens)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            past = len(self.keys[layer])
            all_k, all_v = torch.cat((self.keys[layer], k)), torch.cat((self.values[layer], v))
            self.keys[layer], self.values[layer] = all_k[: past + new], all_v[: past + new]
            visible = full_visible(past + new, block)[past:]
            scores = torch.einsum("qhd,khd->hqk", q, all_k) / q.shape[-1] ** 0.5
            weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
            return torch.einsum("hqk,khd->qhd", weights, all_v)

        hidden = self.model.forward_rows(
            torch.cat((tokens, torch.zeros(block, dtype=torch.int64))),
            torch.arange(self.length, self.length + new + block),
            torch.cat((torch.full((new,), COMMITTED), torch.arange(block))),
            attend,
        )
        self.length += new
        return hidden[new:]


def test_cached_incremental_pass_equals_fresh_pass(model: BlockCausalDLM) -> None:
    tokens = torch.randint(0, 50, (PREFIX,))
    session = CachedSession(model)
    start = 0
    for chunk, block in ((7, 5), (1, 0), (4, 8), (11, BLOCK)):
        cached = session.step(tokens[start : start + chunk], block)
        start += chunk
        fresh = fresh_hidden(model, tokens[:start], block)[start:]
        torch.testing.assert_close(cached, fresh, atol=2e-5, rtol=2e-5)
    assert start == PREFIX


def test_prefix_ignores_block_and_block_sees_prefix(model: BlockCausalDLM) -> None:
    tokens = torch.randint(0, 50, (PREFIX,))
    with_block, without = fresh_hidden(model, tokens, BLOCK), fresh_hidden(model, tokens, 0)
    torch.testing.assert_close(with_block[:PREFIX], without, atol=2e-5, rtol=2e-5)
    changed = tokens.clone()
    changed[0] = (changed[0] + 1) % 50
    other = fresh_hidden(model, changed, BLOCK)
    assert (other[PREFIX:] - with_block[PREFIX:]).abs().amax(-1).min() > 1e-4


def test_slots_are_bidirectional_and_ignore_token_ids(model: BlockCausalDLM) -> None:
    tokens = torch.randint(0, 50, (PREFIX,))
    short, long = fresh_hidden(model, tokens, 3), fresh_hidden(model, tokens, BLOCK)
    assert (short[PREFIX] - long[PREFIX]).abs().max() > 1e-4
    rows = torch.cat((tokens, torch.full((BLOCK,), 7)))
    slots = torch.cat((torch.full((PREFIX,), COMMITTED), torch.arange(BLOCK)))
    attend = masked_attend(full_visible(PREFIX, BLOCK))
    other = model.forward_rows(rows, torch.arange(PREFIX + BLOCK), slots, attend)
    torch.testing.assert_close(other, long)


def test_edge_scores_agree_with_edge_logits(model: BlockCausalDLM) -> None:
    hidden = torch.randn(4, 32)
    previous, following = torch.randint(0, 50, (4, 3)), torch.randint(0, 50, (4, 6))
    scores = model.edge_scores(hidden, previous, following)
    assert scores.shape == (4, 3, 6)
    for column in range(3):
        expected = model.edge_logits(hidden, previous[:, column]).gather(1, following)
        torch.testing.assert_close(scores[:, column], expected)


def test_saved_drafter_loads_and_bad_files_are_refused(
    model: BlockCausalDLM, tmp_path: Path
) -> None:
    model.save(tmp_path)
    loaded = BlockCausalDLM.load(tmp_path, torch.float32)
    for name, weight in model.state_dict().items():
        # 127 steps to a row's largest weight; bf16, of scale and product, loses about one more.
        step = weight.abs().amax(-1, keepdim=True) / 127
        assert ((loaded.state_dict()[name] - weight).abs() <= 2 * step).all(), name
    loaded.save(tmp_path)
    again = BlockCausalDLM.load(tmp_path, torch.float32).state_dict()
    assert all(torch.equal(again[name], each) for name, each in loaded.state_dict().items())
    half = BlockCausalDLM.load(tmp_path, torch.bfloat16)
    assert half.cos.dtype == torch.float32 and half.norm.weight.dtype == torch.bfloat16

    weights = load_file(tmp_path / "model.safetensors")
    save_file({**weights, "extra": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="unknown weights \\['extra'\\]"):
        BlockCausalDLM.load(tmp_path, torch.float32)
    weights["norm.weight"] = torch.zeros(3)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"norm.weight is \[3\]"):
        BlockCausalDLM.load(tmp_path, torch.float32)


def test_config_is_strict(model: BlockCausalDLM, tmp_path: Path) -> None:
    model.save(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "colour": 1}))
    with pytest.raises(ValueError, match="unknown fields"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**raw, "family": "other"}))
    with pytest.raises(ValueError, match="other"):
        read_config(tmp_path)
