"""Decoding on while nothing waits: the same tokens, found earlier."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.types import Acceptance, Round, SamplingParams, Verdict
from tests.support.verifiers import (
    CountingModel,
    RandomModel,
    make_engine,
    opening,
    round_after,
)
from verifier_service.targets.engine import VerifierEngine
from verifier_service.targets.known import Walk, walk

#  prefix - 7 - 9 - 12
#     |     `-- 10
#     `---- 8 - 11
TOKENS = (7, 8, 9, 10, 11, 12)
PARENTS = (-1, -1, 0, 0, 1, 2)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ((), Walk((), (), (0, 1, 2, 3, 4, 5), PARENTS)),
        ((7,), Walk((0,), (), (2, 3, 5), (-1, -1, 0))),
        ((8, 11), Walk((1, 4), (), (), ())),
        ((7, 11), Walk((0,), (11,), (), ())),
        ((5, 6), Walk((), (5, 6), (), ())),
        ((7, 9, 12, 1), Walk((0, 2, 5), (1,), (), ())),
    ],
)
def test_a_tree_is_walked_along_what_is_known(known: tuple[int, ...], expected: Walk) -> None:
    assert walk(TOKENS, PARENTS, known) == expected


def test_of_a_path_the_rest_is_left() -> None:
    assert walk((4, 5, 6), (), (4,)) == Walk((0,), (), (1, 2), (-1, 0))


def verdict_of(engine: VerifierEngine, handle: int, asked: Round) -> Verdict:
    engine.submit(handle, asked)
    for _ in range(99):
        for outcome in engine.step():
            assert isinstance(outcome.result, Verdict)
            return outcome.result
    raise AssertionError("no verdict")


def idle(engine: VerifierEngine, times: int) -> int:
    return sum(engine.decode_on() for _ in range(times))


def ready(engine: VerifierEngine, **fields: object) -> int:
    handle = engine.open(opening(**fields))  # type: ignore[arg-type]
    while engine.has_work:
        engine.step()
    return handle


def test_known_tokens_come_with_the_next_verdict() -> None:
    model = CountingModel()
    engine = make_engine(model, idle_steps=2)
    handle = ready(engine)
    assert idle(engine, 5) == 2
    # 4 and 5 are known: of the draft only 6 is fed, after 5.
    verdict = verdict_of(engine, handle, round_after((1, 2, 3), (4, 5, 6)))
    assert (verdict.accepted, verdict.next_tokens) == (3, (7,))
    assert list(model.batches[-1][0].tokens) == [5, 6]


def test_a_draft_that_missed_is_answered_at_once_by_what_is_known() -> None:
    model = CountingModel()
    engine = make_engine(model, idle_steps=3)
    handle = ready(engine)
    idle(engine, 3)
    forwards = len(model.batches)
    verdict = verdict_of(engine, handle, round_after((1, 2, 3), (4, 9)))
    assert (verdict.accepted, verdict.next_tokens) == (1, (5, 6))
    assert len(model.batches) == forwards
    # A repeated round is answered alike, and the next one goes on from there.
    assert verdict_of(engine, handle, round_after((1, 2, 3), (4, 9))) == verdict
    again = verdict_of(engine, handle, round_after((1, 2, 3, 4, 5, 6), (7,), number=1))
    assert (again.accepted, again.next_tokens) == (1, (8,))


@pytest.mark.parametrize(("steps", "forwards"), [(1, 0), (2, 0), (4, 2)])
def test_plain_steps_use_what_is_known(steps: int, forwards: int) -> None:
    model = CountingModel()
    engine = make_engine(model, idle_steps=2)
    handle = ready(engine)
    idle(engine, 2)
    before = len(model.batches)
    verdict = verdict_of(engine, handle, round_after((1, 2, 3), steps=steps))
    assert verdict.next_tokens == tuple(range(4, 4 + steps))
    assert len(model.batches) - before == forwards


def test_it_stops_at_a_stop_token_and_before_the_end() -> None:
    engine = make_engine(idle_steps=9)
    handle = ready(engine, stop=(5,))
    assert idle(engine, 9) == 2
    assert verdict_of(engine, handle, round_after((1, 2, 3), steps=8)).next_tokens == (4, 5)
    other = make_engine(idle_steps=9)
    ready(other, new=3)
    assert idle(other, 9) == 2


def test_rules_whose_draws_depend_on_the_draft_are_never_decoded_ahead() -> None:
    engine = make_engine(idle_steps=4)
    sampling = SamplingParams(temperature=0.8)
    ready(engine, acceptance=Acceptance.REJECTION, sampling=sampling)
    assert idle(engine, 1) == 0


def test_nothing_is_decoded_ahead_of_a_prefill_or_a_round() -> None:
    engine = make_engine(idle_steps=4)
    handle = engine.open(opening())
    assert idle(engine, 1) == 0
    while engine.has_work:
        engine.step()
    engine.submit(handle, round_after((1, 2, 3)))
    assert idle(engine, 1) == 0


def test_numbers_that_are_not_finite_wait_for_the_round_that_meets_them() -> None:
    model = CountingModel()
    engine = make_engine(model, idle_steps=4)
    ready(engine)
    model.poisoned.add(1)
    assert idle(engine, 3) == 0
    model.poisoned.clear()
    assert idle(engine, 9) == 4


@settings(max_examples=150, deadline=None)
@given(data=st.data(), temperature=st.sampled_from([0.0, 0.9]), seed=st.integers(0, 5))
def test_idle_time_changes_no_token(data: st.DataObject, temperature: float, seed: int) -> None:
    sampling = SamplingParams(temperature=temperature, seed=seed)
    new = 24
    plain = make_engine(RandomModel(vocab=4))
    handle = ready(plain, new=new, sampling=sampling)
    truth = verdict_of(plain, handle, round_after((1, 2, 3), steps=new)).next_tokens

    model = RandomModel(vocab=4)
    engine = make_engine(model, idle_steps=3)
    handle = ready(engine, new=new, sampling=sampling)
    text: list[int] = [1, 2, 3]
    number = 0
    while len(text) < 3 + new:
        idle(engine, data.draw(st.integers(0, 4)))
        room = 3 + new - len(text)
        draft, parents = data.draw(drafts(truth[len(text) - 3 :], min(8, room - 1)))
        steps = data.draw(st.integers(1, min(5, room)))
        asked = round_after(text, draft, parents, number=number, steps=steps)
        verdict = verdict_of(engine, handle, asked)
        text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
        assert tuple(text[3:]) == truth[: len(text) - 3]
        number += 1


@st.composite
def drafts(
    draw: st.DrawFn, truth: Sequence[int], room: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Nothing, a path or a tree of up to room tokens, mostly right."""
    count = draw(st.integers(0, max(0, room)))
    tree = draw(st.booleans())
    parents: list[int] = []
    depth: list[int] = []
    tokens: list[int] = []
    for node in range(count):
        parent = draw(st.integers(-1, node - 1)) if tree else node - 1
        parents.append(parent)
        depth.append(0 if parent < 0 else depth[parent] + 1)
        right = truth[depth[-1]] if depth[-1] < len(truth) else 0
        tokens.append(draw(st.sampled_from([right, right, right, 0, 1, 2, 3])))
    return tuple(tokens), tuple(parents) if tree else ()
