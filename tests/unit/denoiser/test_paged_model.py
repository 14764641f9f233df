"""States through the paged model: what their rows see, and that their bits are theirs alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from denoiser_service.block_kv import BlockKv
from denoiser_service.config import DenoiserConfig
from denoiser_service.core.calibrate import Counts
from denoiser_service.core.decode import GraphDrafting, vanilla
from denoiser_service.core.graph import RankedBy
from denoiser_service.core.next import Rule
from denoiser_service.core.text import Text
from denoiser_service.engine import DenoiserEngine
from denoiser_service.evaluation import Evaluator, Part
from denoiser_service.load import load_engine as load_denoiser
from denoiser_service.runner import Advances
from foredraft.decoding.block_state import MASKED
from foredraft.denoising import Dynamic, Static
from foredraft.errors import ConfigError, WeightsError
from foredraft.pacing.config import PaceConfig, Work
from tests.support.denoiser.paged import Reader, finish, opening
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_table import KvBlocks
from verifier_service.load import load_engine, load_target
from verifier_service.models import numerics

MASK, VOCAB, L = 1, 256, 8
needs_bf16 = pytest.mark.skipif(
    not numerics.native_bf16(), reason="this CPU has no native bf16 arithmetic"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks")
    return write_tiny(folder, block_diffusion={"block_length": L, "mask_token_id": MASK})


@pytest.fixture(scope="module", params=["auto", "transformers"])
def model(checkpoint, request):
    return load_target(VerifierConfig(model=checkpoint, kv_tokens=8192, forward=request.param))


def kv_of(model):
    return KvBlocks(model.pool, block_tokens=model.block_tokens, max_sessions=16)


def some_tokens(rng, count):
    return tuple(int(token) for token in rng.integers(2, VOCAB, count))


def some_state(rng):
    """A state with a masked slot at least."""
    slots = [t if rng.random() < 0.5 else MASKED for t in some_tokens(rng, L)]
    slots[int(rng.integers(L))] = MASKED
    return tuple(slots)


class OneByOne:
    """The model as the core's port: every state in a pass of its own, after the whole prefix."""

    vocab, block_length = VOCAB, L

    def __init__(self, model):
        self.model = model

    def evaluate(self, prefix, states):
        tables = BlockKv(self.model, kv_of(self.model))
        tables.open(1, len(prefix) + L, 0)
        ask = Evaluator(self.model, tables, MASK)
        for at in range(0, len(prefix), L):
            ask([Part(1, prefix, at, at + L, [])])
        found = [ask([Part(1, prefix, len(prefix), len(prefix), [one])])[0][0][0] for one in states]
        tables.close(1)
        return found


def test_a_block_sees_itself_and_the_blocks_before_it(checkpoint):
    model = load_target(VerifierConfig(model=checkpoint, dtype="fp32"))
    assert (model.info.block_length, model.info.mask_token_id) == (L, MASK)
    theirs = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    )
    rng = np.random.default_rng(0)
    prefix, states = some_tokens(rng, 3 * L), [some_state(rng) for _ in range(3)]
    block = torch.arange(4 * L) // L
    seen = (block[None] <= block[:, None]).float()
    for state, found in zip(states, OneByOne(model).evaluate(prefix, states), strict=True):
        tokens = [*prefix, *(MASK if token == MASKED else token for token in state)]
        with torch.inference_mode():
            ran = theirs(torch.tensor([tokens]), attention_mask=torch.log(seen)[None, None])
        expected = np.asarray(ran.logits[0, -L:])
        assert np.isneginf(found[:, MASK]).all()
        expected[:, MASK] = -np.inf
        np.testing.assert_allclose(found, expected, atol=2e-4)


@needs_bf16
def test_the_bits_of_a_state_do_not_depend_on_drafts_or_sessions(model):
    rng = np.random.default_rng(1)
    alone, tables = OneByOne(model), BlockKv(model, kv_of(model))
    ask = Evaluator(model, tables, MASK)
    # The third text's block is the first of a KV block, the fourth's the last.
    texts = [some_tokens(rng, count * L) for count in (1, 3, 8, 15, 0)]
    for key, text in enumerate(texts):
        tables.open(key, len(text) + L, 6)
    # The first call reads the texts, too.
    for cached, drafts in ((0, 0), (None, 1), (None, 3), (None, 6)):
        states = [[some_state(rng) for _ in range(1 + drafts)] for _ in texts]
        parts = [
            Part(key, text, len(text) if cached is None else cached, len(text), states[key])
            for key, text in enumerate(texts)
        ]
        found, rows = ask(parts)
        assert rows == sum(part.end - part.cached + L * len(part.states) for part in parts)
        for text, own, logits in zip(texts, states, found, strict=True):
            for one, other in zip(alone.evaluate(text, own), logits, strict=True):
                assert np.array_equal(one, other)
    for key in range(len(texts)):
        tables.close(key)


@needs_bf16
def test_after_a_full_draft_the_next_block_is_evaluated_and_its_rows_can_be_taken(model):
    rng = np.random.default_rng(4)
    alone, tables = OneByOne(model), BlockKv(model, kv_of(model))
    ask, size = Evaluator(model, tables, MASK), model.block_tokens
    texts = [some_tokens(rng, count * L) for count in (1, 3, size // L - 2, size // L)]
    assert [tables.has_room(len(text), 2 * L) for text in texts] == [True] * 4
    assert not tables.has_room(size - L, 2 * L)
    empty = (MASKED,) * L
    for key, text in enumerate(texts):
        tables.open(key, len(text) + 2 * L, 3)
        ask([Part(key, text, 0, len(text), [some_state(rng)])])
        full = some_tokens(rng, L)
        drafts = [some_state(rng), full, some_state(rng)]
        [found], rows = ask([Part(key, text, len(text), len(text), [empty, *drafts])])
        assert rows == 5 * L
        expected = alone.evaluate(text, [empty, *drafts])
        expected[2] = alone.evaluate((*text, *full), [empty])[0]
        assert all(map(np.array_equal, found, expected))
        # The full state came true: its rows are the text's, and what follows is read after them.
        tables.take(key, 1, len(text), L)
        later = some_state(rng)
        whole = (*text, *full)
        [[seen]], rows = ask([Part(key, whole, len(whole), len(whole), [later])])
        assert rows == L and np.array_equal(seen, alone.evaluate(whole, [later])[0])
    for key in range(len(texts)):
        tables.close(key)
    assert model.pool.available == model.pool.total


@needs_bf16
def test_blocks_are_measured_at_the_start(model):
    assert numerics.measure(model) == "exact"


@needs_bf16
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_graphs_drafts_leave_the_text(model, temperature):
    rng = np.random.default_rng(2)
    counts, requests, texts = Counts(RankedBy.NOISE), [], []
    kinds = list(product((Static(1), Static(3), Dynamic(0.02)), (0, 1, 3)))
    for seed, (unmasking, drafts) in enumerate(kinds):
        prompt = some_tokens(rng, int(rng.integers(1, 75)))
        request = opening(
            prompt, 20, session_id=str(seed), temperature=temperature, seed=seed,
            unmasking=unmasking, drafts=drafts,
        )  # fmt: skip
        rule = Rule(unmasking, temperature, seed)
        decoded = vanilla(OneByOne(model), Text(prompt, 20), rule)
        for block in decoded.blocks:
            counts.add(block, rule)
        requests.append(request)
        texts.append(decoded)
    graph = counts.graph(10)
    engine = DenoiserEngine(
        model, kv_of(model), lambda rule, most: GraphDrafting(graph, rule, most)
    )
    readers = [Reader(engine, request, L) for request in requests]
    while unfinished := [reader for reader in readers if not reader.done]:
        for reader in unfinished:
            reader.submit(int(rng.integers(1, 4)))
        results = finish(engine)
        for reader in unfinished:
            reader.hear(results[reader.handle])
    for reader, plain in zip(readers, texts, strict=True):
        assert reader.text == plain.tokens and reader.steps == plain.steps
        engine.close(reader.handle)
    assert engine.counts.drafts > 0 and model.pool.available == model.pool.total
    assert sum(reader.calls for reader in readers) < sum(reader.steps for reader in readers)


@needs_bf16
def test_a_session_goes_on_elsewhere_from_committed_blocks(model):
    request = opening(some_tokens(np.random.default_rng(3), 13), 30, temperature=1.0, seed=5)
    whole = Reader(DenoiserEngine(model, kv_of(model), no_drafts), request, L)
    whole.submit(1000)
    whole.hear(finish(whole.engine)[whole.handle])
    whole.engine.close(whole.handle)
    for known in range(16 - 13, 30, L):
        prefix = request.prefix + whole.text[:known]
        moved = replace(request, prefix=prefix, max_new_tokens=30 - known)
        other = Reader(DenoiserEngine(model, kv_of(model), no_drafts), moved, L)
        other.submit(1000)
        other.hear(finish(other.engine)[other.handle])
        other.engine.close(other.handle)
        assert other.text == whole.text[known:]


def no_drafts(rule, most):
    return lambda anchor: ()


def test_no_recording_is_played_back(checkpoint, tmp_path):
    with pytest.raises(ConfigError, match="no recording") as refused:
        load_denoiser(DenoiserConfig(model=checkpoint, recording=tmp_path / "recording"))
    assert refused.value.param == "recording"


def test_passes_can_take_the_time_of_a_modelled_device(checkpoint):
    pace = PaceConfig(
        weight_bytes=1e6, flops_per_token=1, kv_bytes_per_token=0, bandwidth=1e9, peak_flops=1e12
    )
    engine = load_denoiser(DenoiserConfig(model=checkpoint, dtype="fp32", pace=pace))
    reader = Reader(engine, opening(prefix=(2, 3, 4, 5)), L)
    reader.submit(1)
    reader.hear(finish(engine)[reader.handle])
    gauges = Advances(engine).gauges()
    assert gauges["paced_passes"] == gauges["passes"] > 0
    assert gauges["modelled_s"] == pytest.approx(gauges["passes"] * pace.pass_s(Work(L, 0, 1)))


def test_a_verifier_refuses_such_a_model(checkpoint):
    with pytest.raises(ConfigError, match="denoiser") as refused:
        load_engine(VerifierConfig(model=checkpoint, dtype="fp32"))
    assert refused.value.param == "model"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"block_length": L}, "mask_token_id"),
        ({"block_length": L, "mask_token_id": VOCAB}, "mask_token_id"),
        ({"block_length": L, "mask_token_id": True}, "mask_token_id"),
        ({"block_length": 0, "mask_token_id": MASK}, "block_length"),
        ({"block_length": 257, "mask_token_id": MASK}, "block_length"),
        ({"block_length": "8", "mask_token_id": MASK}, "block_length"),
        ([L, MASK], "mask_token_id"),
    ],
)
def test_a_model_whose_configuration_is_incomplete_is_refused(tmp_path, fields, named):
    folder = write_tiny(tmp_path, block_diffusion=fields)
    with pytest.raises(WeightsError, match=named):
        load_target(VerifierConfig(model=folder, dtype="fp32"))
