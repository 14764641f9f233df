"""The engine with a counting model: exact verdicts, batching, refusals, nothing left behind."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from foredraft.errors import CorruptModelOutput, InvalidRequest, Overloaded, PrefixMismatch
from foredraft.types import SamplingParams
from tests.support.verifiers import (
    VOCAB,
    CountingModel,
    finish,
    make_engine,
    opening,
    round_after,
    verdict_of,
)
from verifier_service.schedule.costs import PassCosts
from verifier_service.schedule.pricing import Priced


def test_rounds_follow_each_other():
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3)))
    first = verdict_of(engine, handle, round_after((1, 2, 3), (4, 5, 9)))
    assert (first.accepted, first.next_tokens) == (2, (6,))
    full = verdict_of(engine, handle, round_after((1, 2, 3, 4, 5, 6), (7, 8), number=1))
    assert (full.accepted, full.next_tokens) == (2, (9,))
    plain = verdict_of(engine, handle, round_after(range(1, 10), number=2, steps=4))
    assert (plain.accepted, plain.next_tokens) == (0, (10, 11, 12, 13))


def test_a_repeated_round_gets_its_verdict_again_without_a_forward():
    model = CountingModel()
    engine = make_engine(model)
    handle = engine.open(opening())
    request = round_after((1, 2, 3), (4, 9))
    first = verdict_of(engine, handle, request)
    forwards = len(model.batches)
    assert verdict_of(engine, handle, request) == first
    assert len(model.batches) == forwards
    with pytest.raises(PrefixMismatch):
        engine.submit(handle, round_after((1, 2, 3), (4, 5)))
    assert verdict_of(engine, handle, round_after((1, 2, 3, 4, 5), number=1)).next_tokens == (6,)


def test_same_length_but_another_prefix_is_refused():
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3)))
    with pytest.raises(PrefixMismatch, match="another one"):
        engine.submit(handle, round_after((1, 2, 4)))


def test_plain_steps_end_at_a_stop_token_and_at_the_limit():
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3), stop=(6,), new=5))
    assert verdict_of(engine, handle, round_after((1, 2, 3), steps=9)).next_tokens == (4, 5, 6)
    after = round_after((1, 2, 3, 4, 5, 6), number=1, steps=9)
    assert verdict_of(engine, handle, after).next_tokens == (7, 8)
    with pytest.raises(InvalidRequest, match="max_new_tokens"):
        engine.submit(handle, round_after(range(1, 9), number=2))


def test_a_plain_round_ends_when_its_passes_took_long():
    ticks = itertools.count()
    engine = make_engine(clock=lambda: 0.1 * next(ticks), plain_round_s=0.25)
    handle = engine.open(opening((1, 2, 3), new=20))
    assert verdict_of(engine, handle, round_after((1, 2, 3), steps=9)).next_tokens == (4, 5, 6)
    after = round_after(range(1, 7), number=1, steps=2)
    assert verdict_of(engine, handle, after).next_tokens == (7, 8)


def test_what_prompts_take_of_a_rounds_passes_is_in_its_timings():
    ticks = itertools.count()
    pricing = Priced(PassCosts((1, 8), (0.01, 0.02)))
    engine = make_engine(clock=lambda: 0.1 * next(ticks), pricing=pricing, prefill_rows=4)
    handle = engine.open(opening((1, 2, 3), session_id="a"))
    verdict_of(engine, handle, round_after((1, 2, 3), steps=1, session_id="a"))
    alone = round_after((1, 2, 3, 4), number=1, steps=2, session_id="a")
    timings = verdict_of(engine, handle, alone).timings
    assert timings.compute_us > 0 and timings.prefill_us == 0
    other = engine.open(opening(range(1, 13), session_id="b"))
    engine.submit(other, round_after(range(1, 13), session_id="b"))
    beside = round_after(range(1, 7), number=2, steps=2, session_id="a")
    timings = verdict_of(engine, handle, beside).timings
    assert 0 < timings.compute_prefill_us < timings.compute_us
    assert 0 <= timings.queue_prefill_us <= timings.queue_us


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (opening(()), "prefix length"),
        (opening((1, VOCAB)), "prefix"),
        (opening((1, -1)), "prefix"),
        (opening(range(1, 90), new=150), "max_new_tokens"),
        (opening(stop=(VOCAB,)), "stop_token_ids"),
        (opening(sampling=SamplingParams(temperature=float("nan"))), "temperature"),
        (opening(sampling=SamplingParams(top_p=0.0)), "top_p"),
        (opening(draft=-1), "max_draft"),
    ],
)
def test_a_bad_open_allocates_nothing(request_, param):
    model = CountingModel()
    engine = make_engine(model)
    with pytest.raises(InvalidRequest) as caught:
        engine.open(request_)
    assert caught.value.param == param
    assert engine.kv.used_tokens == 0
    assert model.pool.available == model.pool.total


@pytest.mark.parametrize(
    ("draft", "match"), [((VOCAB,), "token id"), (tuple(range(4, 13)), "draft length")]
)
def test_a_bad_round_leaves_the_session_usable(draft, match):
    engine = make_engine()
    handle = engine.open(opening())
    with pytest.raises(InvalidRequest, match=match):
        engine.submit(handle, round_after((1, 2, 3), draft))
    assert verdict_of(engine, handle, round_after((1, 2, 3), (4,))).accepted == 1


def test_a_draft_beyond_the_models_length_is_refused():
    engine = make_engine(CountingModel(max_len=10))
    handle = engine.open(opening(range(1, 9), new=2))
    with pytest.raises(InvalidRequest, match="10 tokens"):
        engine.submit(handle, round_after(range(1, 9), (9, 10)))
    assert verdict_of(engine, handle, round_after(range(1, 9), (9,))).next_tokens == (10,)


def test_admission_is_on_the_worst_case_and_comes_back():
    engine = make_engine(kv_tokens=160, max_sessions=8)
    first = engine.open(opening(new=50, draft=8))
    engine.open(opening(new=50, draft=8))
    with pytest.raises(Overloaded):
        engine.open(opening(new=50, draft=8))
    with pytest.raises(InvalidRequest):
        engine.open(opening(new=180, draft=8))
    engine.close(first)
    engine.close(first)
    engine.open(opening(new=50, draft=8))


def test_bad_logits_end_only_their_own_round():
    model = CountingModel()
    engine = make_engine(model)
    good, bad = engine.open(opening()), engine.open(opening((9, 2, 3)))
    model.poisoned.add(9)
    engine.submit(good, round_after((1, 2, 3), (4, 5)))
    engine.submit(bad, round_after((9, 2, 3), (4, 5)))
    results = finish(engine)
    assert results[good].accepted == 2
    assert isinstance(results[bad], CorruptModelOutput)
    assert engine.corrupted == 1


def test_prefill_is_chunked_and_shares_forwards_with_rounds():
    model = CountingModel()
    engine = make_engine(model, row_budget=16, prefill_rows=8)
    short = engine.open(opening((1, 2)))
    finish(engine)
    long = engine.open(opening([i % VOCAB for i in range(60)]))
    engine.submit(short, round_after((1, 2), steps=4))
    engine.submit(long, round_after([i % VOCAB for i in range(60)], (60,)))
    results = finish(engine)
    assert results[short].next_tokens == (3, 4, 5, 6)
    assert (results[long].accepted, results[long].next_tokens) == (1, (61,))
    assert all(sum(len(s.tokens) for s in batch) <= 16 for batch in model.batches)
    assert any(len(batch) == 2 for batch in model.batches)


def test_many_sessions_in_any_order_get_what_they_get_alone():
    rng = random.Random(7)
    model = CountingModel()
    engine = make_engine(model, kv_tokens=4096, row_budget=24, prefill_rows=8)
    texts = {}
    for i in range(8):
        prefix = [rng.randrange(VOCAB) for _ in range(rng.randrange(1, 40))]
        texts[engine.open(opening(prefix, session_id=f"s{i}"))] = (f"s{i}", prefix)
    numbers = dict.fromkeys(texts, 0)
    waiting: dict[int, Sequence[int]] = {}
    for _ in range(400):
        for handle, (name, text) in texts.items():
            if handle in waiting or numbers[handle] == 6 or rng.random() < 0.3:
                continue
            draft = [(text[-1] + 1 + j) % VOCAB for j in range(rng.randrange(0, 5))]
            if draft and rng.random() < 0.5:
                draft[-1] = (draft[-1] + 1) % VOCAB
            request = round_after(text, draft, number=numbers[handle], steps=3, session_id=name)
            engine.submit(handle, request)
            waiting[handle] = request.draft
        for handle, result in engine.step():
            kept = waiting.pop(handle)[: result.accepted]
            text = texts[handle][1]
            new = [*kept, *result.next_tokens]
            assert new == [(text[-1] + 1 + j) % VOCAB for j in range(len(new))]
            text.extend(new)
            numbers[handle] += 1
    assert set(numbers.values()) == {6}
    for handle in texts:
        engine.close(handle)
    assert model.pool.available == model.pool.total
    assert engine.kv.used_tokens == 0
