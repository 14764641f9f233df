"""A causal language model as path search's proxy, against the same model run on whole texts."""

from __future__ import annotations

import hashlib
import itertools
import json

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from drafter_service.proposals.lattice import NEVER, Lattice
from drafter_service.proposals.path_search import SearchParams, beam_search
from drafter_service.proposals.proxies.causal_lm import CausalLMScorer, load_causal_lm
from foredraft.errors import ConfigError, WeightsError
from foredraft.messages import DraftBlock, DraftOpen
from foredraft.strict import parse
from foredraft.types import Proposal, SamplingParams
from tests.support.drafters import asking
from tests.support.tiny_models import write_tiny
from training.embedded.target_model import TargetModel, TargetShape, export_target

VOCAB = 64
TEXT = (3, 9, 60, 9, 3, 1, 44, 7, 12, 50)
SLOTS = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]


def save_lm(folder, **sizes):
    small = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
    }
    return write_tiny(folder, seed=1, **small | sizes)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return load_causal_lm(save_lm(tmp_path_factory.mktemp("lm")))


def lattice_of(log_q=None):
    tokens = np.array(SLOTS)
    log_q = np.zeros(tokens.shape) if log_q is None else log_q
    zeros = np.zeros(len(tokens) + 1)
    return Lattice(tokens, log_q, np.zeros(tokens.shape), None, (zeros, zeros))


@torch.inference_mode()
def log_p(lm, text):
    """Log-probabilities of what follows text, from one pass over all of it."""
    return lm(torch.tensor([text])).logits[0, -1].log_softmax(-1).numpy()


@pytest.mark.parametrize("window", [1, 4, 64])
def test_scores_are_the_models_own_over_its_vocabulary(lm, window):
    bound = CausalLMScorer(lm, window).bind(lattice_of(), TEXT)
    beams = [()]
    for slot, candidates in enumerate(SLOTS):
        scores = bound.step(slot, beams, np.zeros(len(beams), dtype=np.int64))
        assert scores.dtype == np.float64 and (scores > 0).all()
        for row, beam in zip(scores, beams, strict=True):
            expected = log_p(lm, [*TEXT[-window:], *beam])[candidates]
            assert np.log(row) == pytest.approx(expected, abs=1e-5)
        # Some paths go on, in another order, and two of them from the same one.
        beams = [
            (*beams[-1], candidates[1]),
            (*beams[0], candidates[0]),
            (*beams[0], candidates[2]),
        ]


def test_paths_together_have_the_scores_that_they_have_alone(lm):
    scorer = CausalLMScorer(lm, 64)
    paths = list(itertools.product(*SLOTS[:3]))
    together = scorer.bind(lattice_of(), TEXT)
    for slot in range(4):
        begun = list(dict.fromkeys(path[:slot] for path in paths))
        scores = together.step(slot, begun, np.zeros(len(begun), dtype=np.int64))
    for path, row in zip(paths, scores, strict=True):
        alone = scorer.bind(lattice_of(), TEXT)
        for slot in range(4):
            [expected] = alone.step(slot, [path[:slot]], np.zeros(1, dtype=np.int64))
        assert np.log(row) == pytest.approx(np.log(expected), abs=1e-5)


def test_a_wide_beam_finds_the_best_path(lm):
    log_q = np.log(np.random.default_rng(0).dirichlet(np.ones(3), len(SLOTS)))
    log_q[1, 2] = NEVER
    lattice, weight = lattice_of(log_q), 0.3
    params = SearchParams(weight=weight, beam=81)
    bound = CausalLMScorer(lm, 64).bind(lattice, TEXT)
    found = beam_search(lattice, bound, params, 0.0, eos=0)

    def score(columns):
        text, total = list(TEXT), 0.0
        for slot, column in enumerate(columns):
            token = SLOTS[slot][column]
            total += weight * log_q[slot, column] + (1 - weight) * log_p(lm, text)[token]
            text.append(token)
        return total

    best = max(itertools.product(range(3), range(2), range(3), range(3)), key=score)
    assert found == [row[column] for row, column in zip(SLOTS, best, strict=True)]


def test_a_model_as_training_exports_it_can_be_loaded(tmp_path):
    shape = TargetShape(VOCAB, hidden=32, layers=1, heads=2, intermediate=48, max_positions=128)
    export_target(TargetModel(shape, seed=0), tmp_path)
    assert np.exp(log_p(load_causal_lm(tmp_path), TEXT)).sum() == pytest.approx(1.0, abs=1e-5)


# From a configuration


@pytest.fixture
def drafter(tmp_path):
    torch.manual_seed(0)
    config = BlockCausalConfig(
        VOCAB, 32, 2, 48, edge_rank=8, max_position_embeddings=64, max_block=6
    )
    BlockCausalDLM(config).save(tmp_path / "drafter")
    return tmp_path / "drafter"


def engine_of(drafter, **scorer):
    config = {"model": drafter, "dtype": "float32", "cps": {"scorer": {"lm": 0.5} | scorer}}
    return load_engine(parse(DrafterConfig, config))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_engine_drafts_with_it(drafter, tmp_path, temperature):
    engine = engine_of(drafter, lm_path=str(save_lm(tmp_path / "lm")), lm_window=8)
    sampling = SamplingParams(temperature=temperature, seed=4)
    blocks = []
    for name in ("a", "b"):
        handle, _ = engine.open(DraftOpen(name, TEXT, sampling, Proposal.CPS, 60))
        [block] = engine.propose([(handle, asking(name, TEXT, len(TEXT), 5))])
        assert isinstance(block, DraftBlock)
        blocks.append(block.tokens)
    assert blocks[0] == blocks[1]


@pytest.mark.parametrize(
    ("sizes", "scorer", "named"),
    [
        ({}, {"lm_path": None}, "cps.scorer.lm_path"),
        ({}, {"lm_path": "absent"}, "cps.scorer.lm_path"),
        ({"vocab_size": 65}, {}, "cps.scorer.lm_path"),
        ({"max_position_embeddings": 32}, {"lm_window": 27}, "cps.scorer.lm_window"),
    ],
)
def test_what_cannot_be_used_is_named(drafter, tmp_path, sizes, scorer, named):
    folder = save_lm(tmp_path / "lm", **sizes)
    with pytest.raises(ConfigError) as caught:
        engine_of(drafter, **{"lm_path": str(folder)} | scorer)
    assert caught.value.param == named


def test_its_files_are_checked(drafter, tmp_path):
    folder = save_lm(tmp_path / "lm")
    weights = folder / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    for content in ({"model.safetensors": digest}, {"model.safetensors": "0" * 64}, {}):
        (folder / "manifest.json").write_text(json.dumps(content))
        if content.get("model.safetensors") == digest:
            engine_of(drafter, lm_path=str(folder))
            continue
        with pytest.raises(WeightsError) as caught:
            engine_of(drafter, lm_path=str(folder))
        assert caught.value.param == "cps.scorer.lm_path"


@pytest.mark.parametrize("damage", ["no weights", "not finite", "no config"])
def test_weights_that_cannot_be_used_are_refused(drafter, tmp_path, damage):
    folder = save_lm(tmp_path / "lm")
    if damage == "no weights":
        (folder / "model.safetensors").unlink()
    elif damage == "no config":
        (folder / "config.json").unlink()
    else:
        model = LlamaForCausalLM.from_pretrained(folder)
        model.model.norm.weight.data[0] = torch.nan
        model.save_pretrained(folder)
    with pytest.raises(WeightsError) as caught:
        engine_of(drafter, lm_path=str(folder))
    assert caught.value.param == "cps.scorer.lm_path"
