"""Drafters with a shortlist, and those that read features: what is stored, and what is computed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from drafter_service.models.compiled.drafter import NativeDrafter
from drafter_service.models.embedded.block_causal import BlockCausalDLM
from drafter_service.models.embedded.drafter import CacheShape, EmbeddedDrafter
from drafter_service.models.embedded.fast_torch import FusedBlockCausal
from drafter_service.models.embedded.features import feature_rows
from drafter_service.models.embedded.linear import FloatLinear
from drafter_service.models.port import BlockRequest
from foredraft.errors import ConfigError
from foredraft.features.fusion import read_fusion
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from foredraft_kernels.loader import load_kernels, supported_isas
from tests.support.align.shortlisted import (
    CONFIG,
    TEXT,
    TOKENS_ALONE,
    features,
    network,
    write_target,
)

KERNELS = load_kernels()
ISAS = supported_isas(KERNELS, "int8") if KERNELS else []
CACHE = CacheShape(4, 128)


def on_torch(built, candidates=8):
    named = "features" if built.config.target_layer_ids else ""
    return EmbeddedDrafter(
        FusedBlockCausal(built, FloatLinear), CACHE, candidates, torch.float32, named
    )


def compiled(isa, built, candidates=8):
    named = "features" if built.config.target_layer_ids else ""
    return NativeDrafter(built, CACHE, candidates, KERNELS, isa, named)


KINDS = [on_torch, *(partial(compiled, isa) for isa in ISAS)]


def request(built, start, end, num_slots, slot=3):
    """The part of a pass that reads tokens [start, end)."""
    known = features(built, 100) if built.config.target_layer_ids else b""
    width = 2 * CONFIG.hidden_size
    return BlockRequest(
        slot,
        start,
        TEXT[start:end],
        num_slots,
        features=known[max(0, start - 1) * width : (end - 1) * width],
    )


def fresh(drafter, built, n, num_slots=6):
    [scores] = drafter.draft([request(built, 0, n, num_slots)])
    return scores


def reference(built, n, num_slots):
    """Log-probabilities [slots, vocab] by the training module, and its states."""
    places = torch.tensor(TEXT[:n] + [0] * num_slots)
    read = None
    if built.config.target_layer_ids:
        known = np.frombuffer(features(built, n - 1), np.int16).reshape(n - 1, -1)
        read = torch.zeros(n + num_slots, CONFIG.hidden_size)
        read[1:n] = torch.from_numpy(known.copy()).view(torch.bfloat16).float()

    def attend(_, q, k, v):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        see = torch.ones(len(places), len(places), dtype=torch.bool)
        see[:n] = see[:n].tril()
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, see).transpose(0, 1)

    slots = torch.tensor([-1] * n + list(range(num_slots)))
    last = torch.full((len(places),), n - 1)
    hidden = built.forward_rows(places, torch.arange(len(places)), slots, attend, read, last)[n:]
    logits = torch.full((num_slots, CONFIG.vocab_size), -torch.inf)
    logits[:, built.token_ids] = built.base_logits(hidden)
    logits[:, CONFIG.mask_token_id] = -torch.inf
    return logits.log_softmax(-1), hidden


@pytest.mark.parametrize("config", [CONFIG, TOKENS_ALONE])
def test_candidates_are_of_the_shortlist_and_as_trained(config):
    built = network(config)
    scores = fresh(on_torch(built), built, 40)
    expected, hidden = reference(built, 40, 6)
    listed = set(built.token_ids.tolist())
    for slot in range(6):
        tokens = scores.tokens[slot]
        assert set(tokens.tolist()) <= listed and 0 in tokens
        assert scores.log_q[slot] == pytest.approx(expected[slot, tokens].numpy(), abs=2e-3)
        previous = TEXT[39] if slot == 0 else int(scores.tokens[slot - 1, 2])
        row = built.edge_logits(hidden[slot : slot + 1], torch.tensor([previous]))[0]
        edges = row[built.row_of[torch.from_numpy(tokens)]]
        place = 0 if slot == 0 else 2
        assert scores.edge[slot, place] == pytest.approx(edges.numpy(), abs=2e-3)


@pytest.mark.parametrize("config", [CONFIG, TOKENS_ALONE])
@pytest.mark.parametrize("isa", ISAS)
def test_compiled_is_near_torch(isa, config):
    built = network(config)
    exact, near = on_torch(built, 20), compiled(isa, built, 20)
    for n in (1, 33, 90):
        a, b = fresh(exact, built, n), fresh(near, built, n)
        assert set(b.tokens.flatten().tolist()) <= set(built.token_ids.tolist())
        assert (b.tokens == 0).any(axis=1).all()
        for slot in range(6):
            _, i, j = np.intersect1d(a.tokens[slot], b.tokens[slot], return_indices=True)
            assert len(i) > 12
            assert np.abs(a.log_q[slot, i] - b.log_q[slot, j]).mean() < 0.1
        _, c, d = np.intersect1d(a.tokens[0], b.tokens[0], return_indices=True)
        assert np.abs(a.edge[0, 0, c] - b.edge[0, 0, d]).mean() < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_above_temperature_0_the_noise_of_the_listed_tokens_names_the_candidates(kind):
    built, sampling = network(TOKENS_ALONE), SamplingParams(0.8, seed=5)
    [scores] = kind(built, 20).draft([replace(request(built, 0, 40, 6), sampling=sampling)])
    expected, _ = reference(built, 40, 6)
    noise = gumbel(sampling.seed, np.arange(40, 46), np.arange(CONFIG.vocab_size))
    noisy = expected.numpy() / sampling.temperature + noise
    for slot in range(6):
        best = set(np.argsort(-noisy[slot])[:20].tolist())
        # By chance 6 of them; compiled weights are rounded.
        assert len(best & set(scores.tokens[slot].tolist())) > 15


@pytest.mark.parametrize("config", [CONFIG, TOKENS_ALONE])
@pytest.mark.parametrize("kind", KINDS)
def test_cached_in_pieces_equals_fresh(kind, config):
    built = network(config)
    drafter = kind(built)
    drafter.draft([request(built, 0, 20, 0), request(built, 0, 7, 3, slot=1)])
    drafter.draft([request(built, 20, 21, 5)])
    [scores] = drafter.draft([request(built, 21, 60, 6)])
    again = fresh(kind(built), built, 60)
    assert scores.tokens.tolist() == again.tokens.tolist()
    assert scores.log_q == pytest.approx(again.log_q, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_features_change_the_draft(kind):
    built = network()
    with_states = fresh(kind(built), built, 30)
    other = BlockRequest(3, 0, TEXT[:30], 6, features=bytes(29 * 2 * CONFIG.hidden_size))
    [without] = kind(built).draft([other])
    assert np.abs(with_states.log_q - without.log_q).max() > 0.05


def test_features_must_be_those_of_the_tokens_before():
    width = CONFIG.hidden_size
    rows = feature_rows([request(network(), 0, 3, 1), request(network(), 5, 7, 1)], width)
    assert rows.shape == (5, width) and not rows[0].any() and rows[1:].any(axis=1).all()
    with pytest.raises(ValueError, match="features of 3 tokens for 3"):
        feature_rows([BlockRequest(0, 0, [1, 2, 3], 1, features=bytes(6 * width))], width)


def test_a_folder_has_neither_embedding_nor_head_and_is_read_with_its_target(tmp_path):
    built = network()
    built.save(tmp_path / "drafter")
    target = write_target(tmp_path / "target", built)
    loaded = BlockCausalDLM.load(tmp_path / "drafter", torch.float32, target)
    assert torch.equal(loaded.embedding.weight, built.embedding.weight)
    assert torch.equal(loaded.head.weight, built.embedding.weight[::3])
    assert torch.equal(loaded.token_ids, built.token_ids)
    assert torch.equal(loaded.row_of, built.row_of)
    # Layers are stored in bytes; what the verifier computes with is not.
    assert torch.equal(loaded.fc.weight, built.fc.weight.bfloat16().float())
    assert (tmp_path / "drafter" / "model.safetensors").stat().st_size < 500_000
    fusion = read_fusion(tmp_path / "drafter")
    assert fusion.layer_ids == (0, 2) and fusion.width == 128


def test_a_missing_or_other_target_is_named(tmp_path):
    built = network(TOKENS_ALONE)
    built.save(tmp_path / "drafter")
    with pytest.raises(ConfigError, match="needs its target's folder") as raised:
        BlockCausalDLM.load(tmp_path / "drafter", torch.float32)
    assert raised.value.param == "target"
    other = network(TOKENS_ALONE)
    other.embedding.weight = torch.nn.Parameter(torch.zeros(200, 128))
    target = write_target(tmp_path / "target", other)
    with pytest.raises(ConfigError, match=r"\[192, 128\]; target has \[200, 128\]"):
        BlockCausalDLM.load(tmp_path / "drafter", torch.float32, target)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (list(range(1, 65)), "must have the end token"),
        ([0] * 64, "each of them once"),
        ([*range(63), 192], "tokens of the vocabulary"),
        ([*range(62), -1, 63], "tokens of the vocabulary"),
        (list(range(63)), "a shortlist of 64"),
    ],
)
def test_a_shortlist_that_cannot_be_one_is_refused(tmp_path, listed, message):
    built = network(TOKENS_ALONE)
    built.token_ids = torch.tensor(listed)
    built.save(tmp_path / "drafter")
    target = write_target(tmp_path / "target", built)
    with pytest.raises(ValueError, match=message):
        BlockCausalDLM.load(tmp_path / "drafter", torch.float32, target)
