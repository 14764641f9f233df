"""The compiled forward: the same candidates as fp32 but for rounding, whatever shares the pass."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from drafter_service import load
from drafter_service.config import DrafterConfig
from drafter_service.models.compiled.drafter import NativeDrafter
from drafter_service.models.compiled.packed_weights import supports
from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from drafter_service.models.embedded.drafter import CacheShape, EmbeddedDrafter
from drafter_service.models.embedded.fast_torch import FusedBlockCausal
from drafter_service.models.embedded.linear import FloatLinear, Int8Linear
from drafter_service.models.port import BlockRequest
from foredraft.limits import MIN_TEMPERATURE
from foredraft.noise.gumbel import gumbel
from foredraft.types import SamplingParams
from foredraft_kernels.loader import load_kernels, supported_isas

KERNELS = load_kernels()
ISAS = supported_isas(KERNELS, "int8") if KERNELS else []

# A rank that is padded, two sizes of heads, a vocabulary of fewer than 64 groups of 4.
CONFIG = BlockCausalConfig(192, 128, 2, 192, edge_rank=40, max_position_embeddings=128)
SMALL_HEADS = replace(CONFIG, num_heads=4, num_layers=3)
EMBEDDED = Path(__file__).parents[3] / "models" / "embedded"
CACHE = CacheShape(4, 128)
TEXT = [int(t) for t in np.random.default_rng(0).integers(2, 192, 100)]
CODE = '''
import os

class Reader:
    """Reads lines from a file."""

    def __init__(self, path, encoding="utf-8"):
        self.path = path
        self.encoding = encoding
        self.lines = []

    def read(self):
        with open(self.path, encoding=self.encoding) as file:
            for line in file:
                self.lines.append(line.rstrip())
        return self.lines

def mean(values):
    if not values:
        raise ValueError("mean of nothing")
    total = 0
    for value in values:
        total += value
    return total / len(values)
'''


def network(config=CONFIG):
    torch.manual_seed(0)
    built = BlockCausalDLM(config)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
        for layer in built.layers:
            layer.attention_norm.weight.uniform_(0.5, 1.5)
            layer.mlp_norm.weight.uniform_(0.5, 1.5)
        built.norm.weight.uniform_(1.0, 2.0)
    return built.requires_grad_(False).eval()


def compiled(isa, built, candidates=8, cache=CACHE):
    return NativeDrafter(built, cache, candidates, KERNELS, isa)


@pytest.fixture(params=ISAS)
def native(request):
    """What compiles a network for each instruction set that runs here."""
    return partial(compiled, request.param)


def on_torch(built, linear, candidates=8, cache=CACHE):
    return EmbeddedDrafter(FusedBlockCausal(built, linear), cache, candidates, torch.float32)


def fresh(drafter, tokens, num_slots, slot=3, sampling=SamplingParams()):
    [scores] = drafter.draft([BlockRequest(slot, 0, tokens, num_slots, sampling=sampling)])
    return scores


def same(a, b):
    assert np.array_equal(a.tokens, b.tokens)
    assert np.array_equal(a.log_q, b.log_q)
    assert np.array_equal(a.edge, b.edge)


def errors(exact, other):
    """|log q - log q'| of candidates [slots] x common, and which slots agree on the best."""
    found, best = [], []
    for slot in range(len(exact.tokens)):
        _, i, j = np.intersect1d(exact.tokens[slot], other.tokens[slot], return_indices=True)
        found.append(np.abs(exact.log_q[slot, i] - other.log_q[slot, j]))
        best.append(exact.tokens[slot, 0] == other.tokens[slot, 0])
    return np.concatenate(found), best


@pytest.mark.parametrize("config", [CONFIG, SMALL_HEADS])
@pytest.mark.parametrize("candidates", [5, 40, 64])
def test_near_fp32(native, config, candidates):
    built = network(config)
    exact, near = on_torch(built, FloatLinear, candidates), native(built, candidates)
    coarse = on_torch(built, Int8Linear, candidates)
    for n in (1, 31, 32, 33, 100):
        a, b = fresh(exact, TEXT[:n], 16), fresh(near, TEXT[:n], 16)
        assert b.tokens.shape == b.log_q.shape == (16, candidates)
        assert (np.diff(b.log_q, axis=1)[:, :-1] <= 0).all()
        assert (b.tokens == config.eos_token_id).any(axis=1).all()
        assert (b.tokens != config.mask_token_id).all()
        # log q of these models varies by 0.8.
        wrong, _ = errors(a, b)
        assert wrong.max() < 0.4
        assert wrong.mean() < 0.08
        by_torch, _ = errors(a, fresh(coarse, TEXT[:n], 16))
        assert wrong.mean() < by_torch.mean()
        # Edges of the pairs that are candidates of both.
        for slot in range(1, 16):
            _, p, q = np.intersect1d(a.tokens[slot - 1], b.tokens[slot - 1], return_indices=True)
            _, c, d = np.intersect1d(a.tokens[slot], b.tokens[slot], return_indices=True)
            mine, other = a.edge[slot][np.ix_(p, c)], b.edge[slot][np.ix_(q, d)]
            assert np.abs(mine - other).max() < 0.1 * np.abs(a.edge).max()
        assert (b.edge[0] == b.edge[0, :1]).all()


@pytest.mark.parametrize("config", [CONFIG, SMALL_HEADS])
def test_cached_in_pieces_equals_fresh_to_the_bit(native, config):
    drafter = native(network(config))
    for cuts in ([4, 9, 10, 40], [33], [1, 2, 3, 99]):
        begin = 0
        for end in cuts:
            drafter.draft([BlockRequest(0, begin, TEXT[begin:end], end % 5)])
            begin = end
        [scores] = drafter.draft([BlockRequest(0, begin, TEXT[begin:], 7)])
        same(scores, fresh(drafter, TEXT, 7))


@pytest.mark.skipif(len(ISAS) < 2, reason="this CPU has one instruction set of the forward's")
@pytest.mark.parametrize("config", [CONFIG, SMALL_HEADS])
@pytest.mark.parametrize("masks", [1, 9, 16])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_instruction_set_gives_the_same_bits(config, masks, temperature):
    built, sampling = network(config), SamplingParams(temperature, seed=3)
    first, *others = (
        fresh(compiled(isa, built, 40), TEXT, masks, sampling=sampling) for isa in ISAS
    )
    for other in others:
        same(first, other)


@pytest.mark.parametrize("config", [CONFIG, SMALL_HEADS])
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_noise_chooses_the_candidates(native, config, temperature):
    """Every token that is known by q alone and beats a candidate with its noise is one, too."""
    sampling = SamplingParams(temperature, seed=2**40 + 1)
    drafter, known = native(network(config), 12), native(network(config), 64)
    scores, by_q = fresh(drafter, TEXT, 16, sampling=sampling), fresh(known, TEXT, 16)
    positions = np.arange(len(TEXT), len(TEXT) + 16)
    noisy = scores.log_q / temperature + gumbel(sampling.seed, positions, scores.tokens)
    others = by_q.log_q / temperature + gumbel(sampling.seed, positions, by_q.tokens)
    changed = 0
    for slot in range(16):
        found = scores.tokens[slot].tolist()
        assert len(set(found)) == 12 and config.eos_token_id in found
        # EOS is one whatever its noise.
        least = noisy[slot, scores.tokens[slot] != config.eos_token_id].min() + 1e-4
        # What is further below the best one by q alone gets no noise.
        near = by_q.log_q[slot] > by_q.log_q[slot, 0] - 9.9 * temperature
        better = by_q.tokens[slot, near & (others[slot] > least)].tolist()
        assert set(better) <= set(found)
        changed += found != by_q.tokens[slot, :12].tolist()
        both, i, j = np.intersect1d(scores.tokens[slot], by_q.tokens[slot], return_indices=True)
        assert len(both) and np.array_equal(scores.log_q[slot, i], by_q.log_q[slot, j])
    assert changed > 8


@pytest.mark.parametrize("temperature", [MIN_TEMPERATURE, 100.0])
def test_every_temperature_has_as_many_candidates(native, temperature):
    sampling = SamplingParams(temperature, seed=1)
    scores = fresh(native(network(), 40), TEXT, 16, sampling=sampling)
    assert np.isfinite(scores.log_q).all()
    assert [len(set(row)) for row in scores.tokens.tolist()] == [40] * 16
    if temperature == MIN_TEMPERATURE:
        same(scores, fresh(native(network(), 40), TEXT, 16))


def test_cut_back_and_continued_equals_fresh_to_the_bit(native):
    drafter = native(network())
    drafter.draft([BlockRequest(0, 0, [*TEXT[:5], 40, 41, 42], 6)])
    [scores] = drafter.draft([BlockRequest(0, 5, TEXT[5:10], 3)])
    same(scores, fresh(drafter, TEXT[:10], 3))


def test_a_batch_equals_one_by_one_to_the_bit(native):
    drafter = native(network())
    drafter.draft([BlockRequest(0, 0, TEXT[:7], 0), BlockRequest(1, 0, TEXT[:2], 0)])
    batch = drafter.draft(
        [
            BlockRequest(0, 7, TEXT[7:20], 16),
            BlockRequest(1, 2, [8], 5),
            BlockRequest(2, 0, TEXT[:3], 0),
        ]
    )
    assert [len(scores.tokens) for scores in batch] == [16, 5, 0]
    same(batch[0], fresh(drafter, TEXT[:20], 16))
    same(batch[1], fresh(drafter, [*TEXT[:2], 8], 5))


def test_ties_go_to_the_lower_token(native):
    built = network()
    built.embedding.weight.zero_()
    scores = fresh(native(built), TEXT[:3], 2)
    assert scores.tokens.tolist() == [[0, 2, 3, 4, 5, 6, 7, 8]] * 2
    assert scores.log_q == pytest.approx(-np.log(191), abs=1e-4)


def test_what_is_not_finite_shows(native):
    built = network()
    built.layers[1].gate_up.weight.mul_(100)
    built.layers[1].down.weight.fill_(3e38)
    assert np.isnan(fresh(native(built), TEXT, 2).log_q).all()
    built.layers[1].down.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="finite"):
        native(built)


@pytest.mark.parametrize(
    "request_",
    [
        BlockRequest(4, 0, [5], 1),
        BlockRequest(-1, 0, [5], 1),
        BlockRequest(0, -1, [5], 1),
        BlockRequest(0, 0, [], 1),
        BlockRequest(0, 0, [192], 1),
        BlockRequest(0, 0, [-1], 1),
        BlockRequest(0, 0, [5], 17),
        BlockRequest(0, 0, [5], -1),
        BlockRequest(0, 120, [5], 8),
    ],
)
def test_a_request_out_of_bounds_never_reaches_c(native, request_):
    with pytest.raises(ValueError, match="bounds"):
        native(network()).draft([request_])


def test_sizes_that_do_not_fill_tiles_are_left_to_torch():
    assert supports(CONFIG, 32)
    assert not supports(CONFIG, 65)
    for change in (
        {"hidden_size": 96, "num_heads": 1},
        {"intermediate_size": 100},
        {"vocab_size": 100},
        {"num_heads": 8},
        {"hidden_size": 256, "num_heads": 1},
        {"edge_rank": 300},
    ):
        assert not supports(replace(CONFIG, **change), 32)


@pytest.fixture
def folder(tmp_path):
    network().save(tmp_path / "drafter")
    return tmp_path / "drafter"


@pytest.mark.skipif(not ISAS, reason="not built, or not for this CPU")
def test_int8_is_compiled_where_it_can_be(folder, caplog):
    caplog.set_level(logging.INFO, load.__name__)
    config = DrafterConfig(model=folder)
    assert isinstance(load.load_model(config), NativeDrafter)
    assert isinstance(
        load.load_model(config.model_copy(update={"dtype": "float32"})), EmbeddedDrafter
    )
    assert isinstance(load.load_model(config.model_copy(update={"isa": "none"})), EmbeddedDrafter)
    assert [record.getMessage() for record in caplog.records] == [
        "the drafter runs in int8, compiled",
        "the drafter runs in float32, by torch",
        "the drafter runs in int8, by torch",
    ]


def test_on_the_embedded_model_it_is_nearer_to_fp32_than_torch_int8(native):
    built = BlockCausalDLM.load(EMBEDDED / "drafter", torch.float32)
    text = Tokenizer.from_file(str(EMBEDDED / "tokenizer" / "tokenizer.json")).encode(CODE).ids
    cache = CacheShape(4, 512)
    exact = on_torch(built, FloatLinear, 32, cache)
    found = {}
    for name, drafter in (
        ("compiled", native(built, 32, cache)),
        ("torch", on_torch(built, Int8Linear, 32, cache)),
    ):
        wrong, best = [], []
        for n in range(8, len(text), 4):
            some, agree = errors(fresh(exact, text[:n], 9), fresh(drafter, text[:n], 9))
            wrong.append(some)
            best += agree
        every = np.concatenate(wrong)
        found[name] = (every.mean(), every.max(), np.mean(best))
    mean, most, agreement = found["compiled"]
    # Of log-probabilities; it grows with every distillation, as they become sharper.
    assert mean < 0.08
    assert most < 0.8
    # Of few slots; near ties fall either way with the CPU's own order of sums.
    assert agreement > 0.9
    assert mean < found["torch"][0]
    assert agreement >= found["torch"][2] - 0.01
