"""Drafts for several predicted outcomes of a round: one pass, and the blocks of just in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine, load_model
from drafter_service.models.compiled.drafter import NativeDrafter
from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from foredraft.decoding.outcomes import outcomes_of
from foredraft.errors import InvalidRequest, PrefixMismatch
from foredraft.messages import DraftBlock, DraftOpen, ProposeAhead
from foredraft.types import Proposal, SamplingParams
from tests.support.drafters import (
    ScriptedLM,
    asking,
    asking_ahead,
    counting,
    engine_of,
    opening,
)

CONFIG = BlockCausalConfig(64, 64, 2, 64, edge_rank=8, max_position_embeddings=64, max_block=6)

PREFIX = (3, 4, 5)
OUTCOMES = ((6, 7, 8), (6, 9), (2,), (6, 7, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    pair = tmp_path_factory.mktemp("pair")
    BlockCausalDLM(CONFIG).save(pair / "drafter")
    (pair / "tokenizer").mkdir()
    (pair / "tokenizer" / "tokenizer.json").write_text("{}")
    return pair / "drafter"


def ahead_of(engine: Any, handle: int, request: ProposeAhead) -> tuple[DraftBlock, ...]:
    answer = engine.answers_ahead([(handle, request)])[handle]
    assert isinstance(answer, tuple)
    return answer


def last_pass(model: ScriptedLM) -> list[tuple[int, int | None, int, tuple[int, ...]]]:
    return [(r.slot, r.prefix_slot, r.start, tuple(r.tokens)) for r in model.passes[-1]]


def test_the_models_passes_know_what_the_target_draws_with() -> None:
    model, sampling = ScriptedLM(counting, slots=2, branches=8), SamplingParams(0.8, seed=9)
    engine = engine_of(model)
    handle, _ = engine.open(opening("s", PREFIX, proposal=Proposal.COUPLED, sampling=sampling))
    engine.propose([(handle, asking("s", PREFIX, 3, 2))])
    assert [r.sampling for r in model.passes[-1]] == [sampling]
    ahead_of(engine, handle, asking_ahead("s", PREFIX, OUTCOMES, 2))
    assert [r.sampling for r in model.passes[-1]] == [sampling] * 4


def test_all_outcomes_share_one_pass_behind_the_cached_prefix() -> None:
    model = ScriptedLM(counting, slots=2, branches=8)
    engine = engine_of(model)
    handle, _ = engine.open(opening("s", PREFIX))
    engine.propose([(handle, asking("s", PREFIX, 3, 2))])
    request = asking_ahead("s", PREFIX, OUTCOMES, 2)
    blocks = ahead_of(engine, handle, request)
    assert [block.base for block in blocks] == [each.base for each in outcomes_of(request)]
    assert [block.tokens[0] for block in blocks] == [9, 10, 3, 2]
    assert len(model.passes) == 2
    assert last_pass(model) == [
        (0, None, 3, (6, 7, 8)),
        (2, 0, 3, (6, 9)),
        (3, 0, 3, (2,)),
        (4, 0, 3, (6, 7, 1)),
    ]


def test_the_first_outcome_is_cached_for_when_it_comes_true() -> None:
    model = ScriptedLM(counting, branches=8)
    engine = engine_of(model)
    handle, _ = engine.open(opening("s", PREFIX))
    ahead_of(engine, handle, asking_ahead("s", PREFIX, OUTCOMES, 2))
    engine.propose([(handle, asking("s", (*PREFIX, 6, 7, 8, 9), 3, 2))])
    assert last_pass(model) == [(0, None, 6, (9,))]
    engine.propose([(handle, asking("s", (*PREFIX, 6, 9, 1), 3, 2))])
    assert last_pass(model) == [(0, None, 4, (9, 1))]


def test_a_long_prefix_is_fed_once_for_all_branches() -> None:
    model = ScriptedLM(counting, branches=8)
    engine = engine_of(model, prefill_rows=16)
    prefix = tuple(1 + i % 15 for i in range(30))
    handle, _ = engine.open(opening("s", prefix))
    ahead_of(engine, handle, asking_ahead("s", prefix, OUTCOMES[:2], 2))
    assert sum(len(r.tokens) for part in model.passes for r in part) < 30 + 16 + 16
    assert model.passes[-1][1].start >= 16


@pytest.mark.parametrize(("branches", "sessions", "blocks"), [(0, 1, 1), (2, 1, 3), (4, 2, 3)])
def test_branches_are_shared_out_and_the_rest_is_left(
    branches: int, sessions: int, blocks: int
) -> None:
    engine = engine_of(ScriptedLM(counting, branches=branches))
    names = [f"s{number}" for number in range(sessions)]
    requests = [
        (engine.open(opening(name, PREFIX))[0], asking_ahead(name, PREFIX, OUTCOMES, 2))
        for name in names
    ]
    answers = engine.answers_ahead(requests)
    assert [len(answers[handle]) for handle, _ in requests] == [blocks] * sessions


def test_a_session_without_a_slot_gets_nothing_but_is_moved() -> None:
    model = ScriptedLM(counting, slots=1, branches=2)
    engine = engine_of(model)
    requests = [
        (engine.open(opening(name, PREFIX))[0], asking_ahead(name, PREFIX, OUTCOMES, 2))
        for name in ("a", "b")
    ]
    answers = engine.answers_ahead(requests)
    assert [len(answers[handle]) for handle, _ in requests] == [2, 0]
    [block] = engine.propose([(requests[1][0], asking("b", (*PREFIX, 9), 3, 2))])
    assert isinstance(block, DraftBlock) and block.tokens[0] == 10


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda: asking_ahead("s", PREFIX, ((16,),), 2), InvalidRequest),
        (lambda: asking_ahead("s", PREFIX, ((1,) * 38,), 2), InvalidRequest),
        (lambda: asking_ahead("t", PREFIX, ((1,),), 2), PrefixMismatch),
        (lambda: asking_ahead("s", PREFIX, ((1,),), 9), InvalidRequest),
    ],
)
def test_a_bad_request_disturbs_nothing(request_of: Any, error: type[Exception]) -> None:
    engine = engine_of(ScriptedLM(counting, branches=2))
    handle, _ = engine.open(opening("s", PREFIX))
    assert isinstance(engine.answers_ahead([(handle, request_of())])[handle], error)
    [block] = engine.propose([(handle, asking("s", PREFIX, 3, 2))])
    assert isinstance(block, DraftBlock) and block.tokens == (6, 7)


@pytest.mark.parametrize(("isa", "dtype"), [("auto", "int8"), ("none", "float32")])
@pytest.mark.parametrize("proposal", [Proposal.COUPLED, Proposal.TREE, Proposal.AR])
def test_a_real_model_drafts_ahead_what_it_drafts_in_time(
    folder: Path, isa: Any, dtype: Any, proposal: Proposal
) -> None:
    config = DrafterConfig(model=folder, dtype=dtype, isa=isa, cache_tokens=128, branch_slots=3)
    sampling = SamplingParams(temperature=0.8, seed=4)
    prefix = tuple(range(2, 9)) * 5
    early, late = load_engine(config), load_engine(config)
    if (isa, dtype) == ("auto", "int8"):
        assert isinstance(load_model(config), NativeDrafter)
    handle, _ = early.open(DraftOpen("s", prefix, sampling, proposal, 60, num_guesses=4))
    early.propose([(handle, asking("s", prefix, len(prefix), 5))])
    outcomes = ((6, 7, 8), (6, 9), (2,), (6, 7, 1))
    blocks = ahead_of(early, handle, asking_ahead("s", prefix, outcomes, 5))
    assert len(blocks) == 4
    for tokens, block in zip(outcomes, blocks, strict=True):
        text = (*prefix, *tokens)
        alone, _ = late.open(DraftOpen("s", text, sampling, proposal, 60, num_guesses=4))
        [expected] = late.propose([(alone, asking("s", text, len(text), 5))])
        assert isinstance(expected, DraftBlock)
        assert (block.tokens, block.parents) == (expected.tokens, expected.parents)
        assert [g[:2] for g in block.guesses] == [g[:2] for g in expected.guesses]
        assert all(0 <= t < CONFIG.vocab_size for t in block.tokens)
        late.close(alone)
