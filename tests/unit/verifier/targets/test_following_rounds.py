"""The plain round after one, which the engine begins before it is asked for."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import InvalidRequest
from foredraft.limits import MAX_PLAIN_STEPS
from foredraft.messages import Round, Verdict
from foredraft.ngram.params import NgramParams
from foredraft.types import Base, SamplingParams
from tests.support.verifiers import CountingModel, RandomModel, make_engine, opening, round_after
from verifier_service.targets.engine import VerifierEngine
from verifier_service.targets.pending import NextPlain


def plain_after(text: tuple[int, ...], number: int, left: int, passes: int) -> Round:
    base = Base("s", number, len(text), hash_prefix(text))
    return Round(base, (), min(MAX_PLAIN_STEPS, left), plain_passes=passes)


def verdicts(engine: VerifierEngine) -> list[Verdict]:
    """Step until nothing is pending; return what came."""
    found: list[Verdict] = []
    while engine.has_work:
        for _, verdict in engine.step():
            assert isinstance(verdict, Verdict)
            found.append(verdict)
    return found


def test_one_round_goes_on_unasked_and_is_claimed_with_its_verdict():
    model = CountingModel()
    engine = make_engine(model)
    handle = engine.open(opening((1, 2, 3), new=20))
    first = plain_after((1, 2, 3), 0, 20, 2)
    following = NextPlain(2, wanted=True)
    engine.submit(handle, first, following=following)
    assert [verdict.next_tokens for verdict in verdicts(engine)] == [(4, 5), (6, 7)]
    assert following.begun and not engine.has_work
    passes = len(model.batches)
    third = NextPlain(2, wanted=True)
    engine.submit(handle, plain_after((1, 2, 3, 4, 5), 1, 18, 2), following=third)
    # The second is known, and its verdict waits for no pass; the third begins as it is claimed.
    assert engine.step()[0].result.next_tokens == (6, 7)
    assert third.begun and len(model.batches) == passes
    assert [verdict.next_tokens for verdict in verdicts(engine)] == [(8, 9)]


def test_a_round_that_is_claimed_in_time_goes_on():
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3), new=20))
    engine.submit(handle, plain_after((1, 2, 3), 0, 20, 2), following=NextPlain(2, wanted=True))
    assert engine.step() == [] and len(engine.step()) == 1
    following = NextPlain(2, wanted=True)
    engine.submit(handle, plain_after((1, 2, 3, 4, 5), 1, 18, 2), following=following)
    assert [verdict.next_tokens for verdict in verdicts(engine)] == [(6, 7), (8, 9)]
    assert following.begun


def test_rounds_of_one_pass_are_in_every_pass_though_they_are_claimed_while_one_runs():
    model = CountingModel()
    engine = make_engine(model)
    texts = {engine.open(opening((1, 2, 3), new=12)): (1, 2, 3) for _ in range(3)}
    numbers = dict.fromkeys(texts, 0)
    asking, waiting = list(texts), set[int]()
    while asking or waiting:
        answered = [(handle, found) for handle, found in engine.step() if handle in waiting]
        # What is asked for while a step runs waits for its end.
        for handle in asking:
            text = texts[handle]
            request = plain_after(text, numbers[handle], 15 - len(text), 1)
            engine.submit(handle, request, following=NextPlain(1, wanted=True))
        waiting.update(asking)
        for handle, verdict in answered:
            texts[handle] += verdict.next_tokens
            numbers[handle] += 1
        waiting.difference_update(handle for handle, _ in answered)
        asking = [handle for handle, _ in answered if len(texts[handle]) < 15]
    assert all(text == tuple(range(1, 16)) for text in texts.values())
    reading, *deciding = model.batches
    assert len(reading) == 3 and {len(batch) for batch in deciding} == {3}
    assert len(deciding) == 12


@pytest.mark.parametrize(("wanted", "stop", "new"), [(False, 9, 20), (True, 5, 20), (True, 9, 2)])
def test_nothing_goes_on_unwanted_or_beyond_the_end(wanted, stop, new):
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3), new=new, stop=(stop,)))
    following = NextPlain(2, wanted)
    engine.submit(handle, plain_after((1, 2, 3), 0, new, 2), following=following)
    assert [verdict.next_tokens for verdict in verdicts(engine)] == [(4, 5)]
    assert not following.begun


def test_it_is_wanted_or_not_until_the_round_ends():
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3), new=20))
    following = NextPlain(2, wanted=True)
    engine.submit(handle, plain_after((1, 2, 3), 0, 20, 2), following=following)
    engine.step()
    following.wanted = False
    assert [verdict.next_tokens for verdict in verdicts(engine)] == [(4, 5)]
    assert not following.begun


def test_another_round_does_not_take_the_place_of_the_one_begun():
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3), new=20))
    engine.submit(handle, plain_after((1, 2, 3), 0, 20, 2), following=NextPlain(2, wanted=True))
    engine.step()
    engine.step()
    with pytest.raises(InvalidRequest, match="in flight"):
        engine.submit(handle, round_after((1, 2, 3, 4, 5), (6,), number=1))
    assert [verdict.next_tokens for verdict in verdicts(engine)] == [(6, 7)]


@pytest.mark.parametrize("seed", range(30))
def test_texts_are_the_same_however_rounds_follow(seed):
    rng = random.Random(seed)
    prefix = tuple(rng.randrange(3) for _ in range(12))
    sampling = SamplingParams(rng.choice((0.0, 0.8)), seed=seed)
    opened = opening(prefix, new=40, draft=6, sampling=sampling)
    opened = replace(opened, ngram=rng.choice((None, NgramParams())))
    engine = make_engine(RandomModel(vocab=3))
    plain = engine.open(opened)
    engine.submit(plain, plain_after(prefix, 0, 40, 0))
    (expected,) = verdicts(engine)
    handle, text, number = engine.open(opened), prefix, 0
    following = NextPlain(0, wanted=False)
    while len(text) < len(prefix) + 40:
        passes = following.passes if following.begun else rng.randint(1, 4)
        following = NextPlain(rng.randint(1, 4), wanted=rng.random() < 0.7)
        request = plain_after(text, number, len(prefix) + 40 - len(text), passes)
        engine.submit(handle, request, following=following)
        verdict = None
        while verdict is None:
            verdict = next((found.result for found in engine.step()), None)
        for _ in range(rng.randint(0, 3)):
            # The engine goes on before the round is asked for.
            engine.step()
        assert verdict.base == request.base
        text, number = (*text, *verdict.next_tokens), number + 1
    assert text[len(prefix) :] == expected.next_tokens
