"""Sessions of all methods side by side in one engine: shared passes, right caches, own answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drafter_service.proposals.lattice import BlockScores
from foredraft.errors import CorruptModelOutput
from foredraft.types import Guess, Proposal, SamplingParams, WarmupProposal
from tests.support.drafters import ScriptedLM, asking, counting, engine_of, opening, scores_of

PREFIX = (3, 4, 5)
WAYS: dict[str, dict[str, Any]] = {
    "argmax": {},
    "coupled": {"proposal": Proposal.COUPLED},
    "cps": {"proposal": Proposal.CPS},
    "tree": {"proposal": Proposal.TREE},
    "sampled": {"proposal": Proposal.SAMPLED},
    "ar": {"proposal": Proposal.AR},
    "lookup": {"proposal": Proposal.LOOKUP},
    "refined": {"proposal": Proposal.COUPLED, "steps": 3},
    "extended": {"proposal": Proposal.COUPLED, "extend": True},
    "opening": {
        "proposal": Proposal.TREE,
        "warmup_proposal": WarmupProposal.AR,
        "warmup_tokens": 9,
    },
}
SETTINGS: dict[str, Any] = {"extend": {"block": 2, "confidence": 0.0}}


def random_script(prefix, num_slots):
    """Scores that are a function of the prefix, EOS seldom."""
    rng = np.random.default_rng([*prefix, num_slots])
    rows = []
    for _ in range(num_slots):
        tokens = rng.permutation(15)[:5] + 1
        rows.append(dict(zip(tokens.tolist(), rng.dirichlet(np.ones(5)), strict=True)) | {0: 1e-9})
    return scores_of(rows)


def sampling_of(temperature):
    return SamplingParams(temperature, seed=5)


def run(names, temperature, slots=16):
    """Each name's blocks over three rounds of growing text, all of a round asked at once."""
    model = ScriptedLM(random_script, slots=slots)
    engine = engine_of(model, max_sessions=20, **SETTINGS)
    handles = {}
    for name in names:
        prefix = (*PREFIX, 1 + sorted(WAYS).index(name))
        request = opening(name, prefix, sampling=sampling_of(temperature), **WAYS[name])
        handles[name] = (engine.open(request)[0], prefix)
    texts: dict[str, tuple[int, ...]] = {name: prefix for name, (_, prefix) in handles.items()}
    known = {name: len(prefix) for name, prefix in texts.items()}
    found: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(3):
        requests = [
            (handles[n][0], asking(n, texts[n], min(known[n], len(texts[n])), 4)) for n in names
        ]
        for name, block in zip(names, engine.propose(requests), strict=True):
            found[name].append((block.tokens, block.parents, block.guesses, block.q))
            known[name] = len(texts[name])
            # Half of the draft is kept and another token follows.
            texts[name] += (*block.tokens[:1], 9)
    return found, model


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_mixed_methods_equal_each_alone(temperature):
    together, model = run(list(WAYS), temperature)
    for name in WAYS:
        alone, _ = run([name], temperature)
        assert alone[name] == together[name], name
    # A round takes as many passes as its longest method, and all share them.
    assert len(model.passes) <= 3 * 4
    assert len(model.passes[0]) == len(WAYS) - 1


def test_more_sessions_than_cache_slots_equal_each_alone():
    together, _ = run(list(WAYS), 0.9, slots=3)
    for name in WAYS:
        assert run([name], 0.9)[0][name] == together[name], name


def fed(model):
    return [[(r.start, tuple(r.tokens), r.num_slots) for r in part] for part in model.passes]


def test_drafted_tokens_do_not_stay_in_the_cache():
    model = ScriptedLM(counting)
    engine = engine_of(model)
    handle, _ = engine.open(opening("s", PREFIX, proposal=Proposal.AR))
    [block] = engine.propose([(handle, asking("s", PREFIX, 3, 3))])
    assert block.tokens == (6, 7, 8)
    assert block.timings.batch_rows == 4 + 2 + 2
    # Kept two of them, then another token; then a miss of everything.
    [block] = engine.propose([(handle, asking("s", (*PREFIX, 6, 7, 2), 3, 2))])
    assert block.tokens == (3, 4)
    [block] = engine.propose([(handle, asking("s", (*PREFIX, 9), 3, 1))])
    assert block.tokens == (10,)
    assert fed(model) == [
        [(0, PREFIX, 1)],
        [(3, (6,), 1)],
        [(4, (7,), 1)],
        [(3, (6, 7, 2), 1)],
        [(6, (3,), 1)],
        [(3, (9,), 1)],
    ]


def test_the_passes_of_a_refined_block_see_what_is_decided():
    model = ScriptedLM(counting)
    engine = engine_of(model)
    handle, _ = engine.open(opening("s", PREFIX, steps=2))
    [block] = engine.propose([(handle, asking("s", PREFIX, 3, 3))])
    assert (block.tokens, block.guesses) == ((6, 7, 8), (Guess(2, 9, 1.0),))
    assert [[tuple(r.filled) for r in part] for part in model.passes] == [[()], [(6, 7, -1, -1)]]
    assert fed(model) == [[(0, PREFIX, 4)], [(2, (5,), 4)]]


def test_a_long_prefix_is_fed_in_chunks_before_the_first_of_several_passes():
    model = ScriptedLM(counting)
    engine = engine_of(model, prefill_rows=4)
    prefix = tuple(range(1, 12))
    handle, _ = engine.open(opening("s", prefix, proposal=Proposal.AR))
    [block] = engine.propose([(handle, asking("s", prefix, 11, 2))])
    assert block.tokens == (12, 13)
    assert [len(tokens) for part in fed(model) for _, tokens, _ in part] == [4, 4, 3, 1]


def test_a_block_is_answered_as_soon_as_its_own_passes_are_done():
    engine = engine_of(ScriptedLM(counting))
    ways = ("ar", "argmax", "lookup", "refined")
    handles = {n: engine.open(opening(n, PREFIX, **WAYS[n]))[0] for n in ways}
    requests = [(handle, asking(n, PREFIX, 3, 4)) for n, handle in handles.items()]
    order = [sorted(known) for known in engine.answers(requests)]
    expected = (["lookup"], ["argmax"], ["refined"], ["ar"])
    assert order == [[handles[n] for n in names] for names in expected]


def test_scores_that_are_not_finite_end_one_draft_in_any_of_its_passes():
    def script(prefix, num_slots):
        good = counting(prefix, num_slots)
        return BlockScores(good.tokens, good.log_q * np.nan) if prefix[-1] == 8 else good

    engine = engine_of(ScriptedLM(script))
    bad, _ = engine.open(opening("bad", PREFIX, proposal=Proposal.AR))
    good, _ = engine.open(opening("good", (9,), proposal=Proposal.AR))
    answers = engine.propose(
        [(bad, asking("bad", PREFIX, 3, 5)), (good, asking("good", (9,), 1, 5))]
    )
    assert isinstance(answers[0], CorruptModelOutput)
    assert answers[1].tokens == (10, 11, 12, 13, 14)
    # The session lives on.
    [block] = engine.propose([(bad, asking("bad", (*PREFIX, 9), 3, 2))])
    assert block.tokens == (10, 11)


def test_a_family_without_a_prefix_cache_gets_the_drafted_text_too():
    model = ScriptedLM(counting)
    model.capabilities = replace(model.capabilities, prefix_kv="none")
    engine = engine_of(model)
    handle, _ = engine.open(opening("s", PREFIX, proposal=Proposal.AR))
    engine.propose([(handle, asking("s", PREFIX, 3, 2))])
    assert fed(model) == [[(0, PREFIX, 1)], [(0, (*PREFIX, 6), 1)]]
    # The second text's end was drafted.
    assert [r.tentative for requests in model.passes for r in requests] == [False, True]


def test_methods_keep_to_the_models_longest_sequence():
    engine = engine_of(ScriptedLM(counting), **SETTINGS)
    for name in ("ar", "extended", "refined", "sampled", "tree"):
        handle, _ = engine.open(opening(name, (1,), max_len=64, **WAYS[name]))
        for length in (60, 62, 63):
            text = tuple(1 + i % 15 for i in range(length))
            [block] = engine.propose([(handle, asking(name, text, 1, 8))])
            assert len(block.tokens) == 64 - length, name
