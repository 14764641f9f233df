"""The engine: the text of decoding without drafts, whoever shares the calls; refusals; the KV."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from denoiser_service.core.decode import vanilla
from denoiser_service.core.next import Rule
from denoiser_service.core.text import Text
from foredraft.denoising import Dynamic, Static
from foredraft.errors import (
    ConfigError,
    CorruptModelOutput,
    InvalidRequest,
    Overloaded,
    PrefixMismatch,
)
from foredraft.types import SamplingParams
from tests.support.denoiser.paged import (
    MASK,
    PagedTable,
    Reader,
    advance,
    advanced,
    finish,
    make_engine,
    opening,
)
from tests.support.denoiser.tabular import SLOTS, VOCAB, Tabular, all_successors, hostile

rules = st.sampled_from([Static(1), Static(2), Dynamic(0.5), Dynamic(0.9)])
openings = st.builds(
    opening,
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=25).map(tuple),
    st.integers(1, 30),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 2**63),
    unmasking=rules,
    drafts=st.integers(0, 5),
    stops=st.sampled_from([(), (2,)]),
)


def plain(request, seed=0):
    """The text and the steps without an engine and without drafts."""
    text = Text(request.prefix, request.max_new_tokens, frozenset(request.stop_token_ids))
    sampling = request.sampling
    return vanilla(
        Tabular(seed), text, Rule(request.unmasking, sampling.temperature, sampling.seed)
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(openings, min_size=1, max_size=4), st.integers(0, 10_000), st.integers(2, 40))
def test_any_drafts_and_neighbours_leave_the_text(requests, seed, budget):
    random = np.random.default_rng(seed)
    model = PagedTable()
    engine = make_engine(
        model, lambda rule, most: hostile(random), row_budget=budget, prefill_rows=SLOTS
    )
    readers = [Reader(engine, replace(one, session_id=str(i))) for i, one in enumerate(requests)]
    for reader in readers:
        reader.submit(int(random.integers(1, 9)))
    of_handle = {reader.handle: reader for reader in readers}
    while engine.has_work:
        for handle, result in engine.step():
            reader = of_handle[handle]
            reader.hear(result)
            if not reader.done:
                reader.submit(int(random.integers(1, 9)))
    for reader in readers:
        expected = plain(reader.request)
        assert reader.done and reader.text == expected.tokens
        assert reader.steps == expected.steps >= reader.calls
        engine.close(reader.handle)
    assert model.pool.available == model.pool.total and not engine.kv.used_tokens


def test_drafts_spare_calls():
    request = opening(new=20, drafts=60)
    engine = make_engine(
        PagedTable(), lambda rule, most: all_successors, row_budget=500, most_drafts=64
    )
    reader = Reader(engine, request)
    reader.submit(100)
    reader.hear(finish(engine)[reader.handle])
    assert reader.done and reader.text == plain(request).tokens
    # A block's first call has no drafts, its second one has all that may come. One call less for
    # every second block, whose KV block has room for the next one's first state, too.
    assert reader.calls == 2 * 7 - 3 < reader.steps == plain(request).steps
    assert engine.counts.steps - engine.counts.calls == reader.steps - reader.calls
    assert engine.counts.drafts > 0


def test_a_finished_block_is_read_in_the_call_that_opens_the_next():
    model = PagedTable()
    reader = Reader(make_engine(model), opening((0,) * SLOTS, 2 * SLOTS))
    reader.submit(100)
    reader.hear(finish(reader.engine)[reader.handle])
    assert len(model.passes) == reader.calls == 2 * SLOTS
    assert [len(segments) for segments in model.passes] == [2, 1, 1, 2, 1, 1]


def test_a_long_prompt_is_read_in_parts_and_once_for_all():
    model = PagedTable()
    engine = make_engine(model, row_budget=12, prefill_rows=6)
    prompt = tuple(int(t) for t in np.random.default_rng(0).integers(0, VOCAB, 31))
    first = Reader(engine, opening(prompt, 5))
    first.submit(9)
    first.hear(finish(engine)[first.handle])
    assert max(sum(len(s.tokens) for s in segments) for segments in model.passes) <= 12
    before = len(model.passes)
    second = Reader(engine, opening(prompt, 5))
    second.submit(9)
    second.hear(finish(engine)[second.handle])
    assert engine.kv.shared_tokens >= 24
    assert len(model.passes) - before < before
    assert first.text == second.text == plain(first.request).tokens
    other = Reader(engine, replace(opening(prompt, 5), cache_salt="other"))
    finish(engine)
    assert engine.kv.shared_tokens == 24
    other.submit(9)
    other.hear(finish(engine)[other.handle])
    assert other.text == first.text


def test_a_repeated_advance_is_answered_again_and_a_stale_one_refused():
    engine = make_engine()
    handle = engine.open(opening())
    asked = advance((1, 0, 2, 1))
    first = advanced(engine, handle, asked)
    assert advanced(engine, handle, asked) == first
    with pytest.raises(PrefixMismatch) as refused:
        engine.submit(handle, replace(asked, calls=2))
    assert refused.value.param == "base"
    engine.submit(handle, advance((1, 0, 2), first.block, number=1))
    with pytest.raises(InvalidRequest, match="in flight") as refused:
        engine.submit(handle, advance((1, 0, 2), first.block, 2, number=1))
    assert refused.value.param == "advance"
    finish(engine)


def test_nothing_follows_the_end():
    engine = make_engine()
    handle = engine.open(opening(new=1))
    last = advanced(engine, handle, advance((1, 0, 2, 1), calls=9))
    assert (last.block, len(last.committed)) == ((), SLOTS)
    with pytest.raises(InvalidRequest, match="ended"):
        engine.submit(handle, advance((1, 0, 2, *last.committed)))
    assert not engine.has_work
    engine.close(handle)
    engine.close(handle)
    with pytest.raises(InvalidRequest, match="not open"):
        engine.submit(handle, advance((1, 0, 2, 1)))


def test_corrupt_logits_end_their_own_advance_alone():
    model = PagedTable()
    model.poisoned = {2}
    engine = make_engine(model)
    good = Reader(engine, opening((1, 1), 5))
    bad = Reader(engine, opening((2, 2), 5))
    good.submit(50)
    bad.submit(50)
    results = finish(engine)
    assert isinstance(results[bad.handle], CorruptModelOutput)
    good.hear(results[good.handle])
    assert good.text == plain(good.request).tokens and engine.counts.corrupted == 1


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("session_id", {"session_id": ""}),
        ("prefix length", {"prefix": ()}),
        ("prefix", {"prefix": (VOCAB + 1,)}),
        ("prefix", {"prefix": (1, MASK)}),
        ("stop_token_ids", {"stop_token_ids": (-1,)}),
        ("max_new_tokens", {"max_new_tokens": 57}),
        ("max_drafts", {"max_drafts": 9}),
        ("per_step", {"unmasking": Static(SLOTS + 1)}),
        ("temperature", {"sampling": SamplingParams(-1)}),
        ("top_k", {"sampling": SamplingParams(1, top_k=1)}),
        ("top_p", {"sampling": SamplingParams(1, top_p=0.5)}),
        ("min_p", {"sampling": SamplingParams(1, min_p=0.5)}),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(field, changes):
    model = PagedTable()
    engine = make_engine(model)
    with pytest.raises(InvalidRequest) as refused:
        engine.open(replace(opening(), **changes))
    assert refused.value.param == field
    assert model.pool.available == model.pool.total and not engine.kv.used_tokens


def test_sessions_are_admitted_while_their_worst_case_fits():
    model = PagedTable(blocks=8)
    engine = make_engine(model)
    # 11 rows in whole blocks are 12, two blocks of KV; two drafts are a block each.
    first = engine.open(opening(drafts=2))
    engine.open(opening(drafts=2, session_id="t"))
    with pytest.raises(Overloaded):
        engine.open(opening(drafts=0, session_id="u"))
    engine.close(first)
    engine.open(opening(drafts=0, session_id="u"))


def test_another_models_blocks_are_refused():
    model = PagedTable()
    model.info = replace(model.info, block_length=0)
    with pytest.raises(ConfigError) as refused:
        make_engine(model)
    assert refused.value.param == "model"
    model.info = replace(model.info, block_length=4)
    with pytest.raises(ConfigError) as refused:
        make_engine(model)
    assert refused.value.param == "block_tokens"


def test_a_session_gets_no_kv_for_drafts_that_are_never_made():
    engine = make_engine(useful_drafts=0)
    engine.open(opening(new=7, drafts=5))
    assert engine.kv.used_tokens == 12
