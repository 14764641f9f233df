"""DenoiseSession: the text whatever replicas are lost, and lies that change nothing."""

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
from foredraft.errors import CorruptModelOutput, Unavailable
from foredraft.types import FinishReason
from orchestrator.session.denoise import DenoiseSession
from tests.support.denoiser.paged import PagedTable, finish, make_engine, opening
from tests.support.denoiser.tabular import SLOTS, VOCAB, Tabular, hostile

requests = st.builds(
    opening,
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=10).map(tuple),
    st.integers(1, 20),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 2**63),
    unmasking=st.sampled_from([Static(1), Static(2), Dynamic(0.5)]),
    drafts=st.integers(0, 4),
    stops=st.sampled_from([(), (2,)]),
)


def plain(request):
    text = Text(request.prefix, request.max_new_tokens, frozenset(request.stop_token_ids))
    rule = Rule(request.unmasking, request.sampling.temperature, request.sampling.seed)
    return vanilla(Tabular(), text, rule).tokens


def replica(session, random):
    """An engine with the session open on it."""
    engine = make_engine(PagedTable(), lambda rule, most: hostile(random))
    handle = engine.open(session.open_message())
    session.opened(engine.info)
    return engine, handle


def answered(session, engine, handle, calls):
    request = session.next_advance(calls)
    engine.submit(handle, request)
    return request, finish(engine)[handle]


@settings(max_examples=100, deadline=None)
@given(requests, st.integers(0, 10_000))
def test_the_text_is_that_of_one_replica_whatever_is_lost(request, seed):
    random = np.random.default_rng(seed)
    session = DenoiseSession(request)
    found: tuple[int, ...] = ()
    engine, handle = replica(session, random)
    while session.finish is None:
        asked, answer = answered(session, engine, handle, int(random.integers(1, 5)))
        if random.random() < 0.3:
            # Before its answer came, or after.
            if random.random() < 0.5:
                found += session.advanced(asked, answer)
            if session.finish is None:
                engine, handle = replica(session, random)
            continue
        found += session.advanced(asked, answer)
        assert found == session.text == plain(request)[: len(found)]
    assert found == plain(request)
    stopped = bool(found) and found[-1] in request.stop_token_ids
    assert session.finish is (FinishReason.STOP if stopped else FinishReason.LENGTH)


def lies(answer):
    """What no denoiser may answer in place of a first answer from a block of 3 slots, 1 given."""
    filled = next(i for i, token in enumerate(answer.block) if token >= 0 and i > 0)
    other = list(answer.block)
    other[0] = (other[0] + 1) % VOCAB
    return [
        replace(answer, base=replace(answer.base, round=9)),
        replace(answer, calls=2),
        replace(answer, calls=0),
        replace(answer, block=tuple(other)),
        replace(answer, block=answer.block[:-1]),
        replace(answer, block=()),
        replace(answer, committed=(1,)),
        replace(answer, committed=(1, 2, 0), block=()),
        replace(answer, block=tuple(-1 if i == filled else t for i, t in enumerate(answer.block))),
    ]


def test_lies_are_refused_and_change_nothing():
    session = DenoiseSession(opening())
    engine, handle = replica(session, np.random.default_rng(0))
    asked, answer = answered(session, engine, handle, 1)
    for lie in lies(answer):
        with pytest.raises(CorruptModelOutput):
            session.advanced(asked, lie)
        assert session.text == () and session.finish is None
    session.advanced(asked, answer)


def test_another_text_than_the_one_streamed_is_refused():
    request = opening((1,) * SLOTS, 6)
    session = DenoiseSession(request)
    engine, handle = replica(session, np.random.default_rng(0))
    while not session.text:
        session.advanced(*answered(session, engine, handle, 1))
    begun = session.text
    for seed in range(1, 50):
        engine = make_engine(PagedTable(seed))
        handle = engine.open(session.open_message())
        session.opened(engine.info)
        asked, answer = answered(session, engine, handle, SLOTS)
        if answer.committed[: len(begun)] != begun:
            break
    with pytest.raises(CorruptModelOutput, match="other tokens"):
        session.advanced(asked, answer)
    assert session.text == begun


def test_another_target_is_refused():
    session = DenoiseSession(opening())
    replica(session, np.random.default_rng(0))
    with pytest.raises(Unavailable, match="another model"):
        session.opened(replace(PagedTable().info, weights_hash="x"))
