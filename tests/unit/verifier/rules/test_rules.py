"""Sessions under the four acceptance rules, through the engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import CorruptModelOutput, InvalidRequest
from foredraft.messages import Verdict
from foredraft.types import Acceptance, Candidates, SamplingParams
from tests.support.examples import examples
from tests.support.verifiers import (
    RandomModel,
    finish,
    make_engine,
    opening,
    round_after,
    verdict_of,
)
from verifier_service.rules.rules import Coupled, Independent, rule_of
from verifier_service.rules.sampling import gumbel_argmax

VOCAB = 6
WARM = SamplingParams(temperature=0.8, top_p=0.95, seed=5)
OTHERS = [rule for rule in Acceptance if rule is not Acceptance.COUPLED]


def random_draft(rng, most=4):
    """A draft of up to `most` tokens, and what each of them might have been drawn from."""
    tokens = tuple(rng.integers(0, VOCAB, rng.integers(1, most + 1)).tolist())
    q = []
    for token in tokens:
        others = [v for v in rng.permutation(VOCAB).tolist() if v != token][: rng.integers(VOCAB)]
        weights = rng.integers(0, 1 << 16, len(others) + 1)
        weights[0] += 1
        q.append(Candidates((token, *others), tuple(weights.tolist())))
    return tokens, tuple(q)


def played(acceptance, sampling=WARM, *, rounds=8, state=0, name="s", with_q=True):
    """The text after some drafted and plain rounds, alone on an engine; and its verdicts."""
    rng = np.random.default_rng(state)
    model = RandomModel(vocab=VOCAB)
    engine = make_engine(model)
    text = [1, 2, 3]
    asked = opening(text, sampling=sampling, acceptance=acceptance, session_id=name)
    handle, verdicts = engine.open(asked), []
    for number in range(rounds):
        tokens, q = random_draft(rng) if number % 3 != 1 else ((), ())
        request = round_after(
            text, tokens, number=number, steps=2, session_id=name, q=q if with_q else ()
        )
        answer = verdict_of(engine, handle, request)
        text += [*tokens[: answer.accepted], *answer.next_tokens]
        verdicts.append((answer.accepted, answer.next_tokens, answer.path))
        # KV holds the committed tokens but the last.
        engine.compact()
        assert model.text(engine.kv.table(handle), len(text) - 1) == text[:-1]
    return text, verdicts


@pytest.mark.parametrize("acceptance", list(Acceptance))
def test_the_same_requests_get_the_same_verdicts(acceptance):
    first = played(acceptance)
    assert first == played(acceptance)
    seeds = [played(acceptance, SamplingParams(0.8, seed=seed))[0] for seed in range(4)]
    assert len(set(map(tuple, seeds))) > 1


@pytest.mark.parametrize("acceptance", OTHERS)
def test_the_rules_decide_differently(acceptance):
    drafts = [played(rule, state=4, rounds=12) for rule in (Acceptance.COUPLED, acceptance)]
    assert drafts[0] != drafts[1]


@given(st.integers(0, 10_000), st.sampled_from(OTHERS), st.booleans())
@examples(40)
def test_at_temperature_0_every_rule_is_coupled(state, acceptance, with_q):
    greedy = SamplingParams()
    assert played(acceptance, greedy, state=state, with_q=with_q) == played(
        Acceptance.COUPLED, greedy, state=state
    )


@pytest.mark.parametrize("acceptance", OTHERS)
def test_plain_decoding_is_the_same_for_all_rules(acceptance):
    texts = []
    for rule in (Acceptance.COUPLED, acceptance):
        engine = make_engine(RandomModel(vocab=VOCAB))
        handle = engine.open(opening((1, 2), sampling=WARM, acceptance=rule))
        first = verdict_of(engine, handle, round_after((1, 2), steps=5)).next_tokens
        after = round_after((1, 2, *first), number=1, steps=4)
        texts.append(first + verdict_of(engine, handle, after).next_tokens)
    assert texts[0] == texts[1]
    assert len(texts[0]) == 9


def test_after_a_draft_plain_rounds_leave_the_shared_noise():
    """Steps asked for one by one or together get the same tokens all the same."""
    texts = []
    for steps in (1, 4):
        engine = make_engine(RandomModel(vocab=VOCAB))
        handle = engine.open(opening((1, 2), sampling=WARM, acceptance=Acceptance.REJECTION))
        answer = verdict_of(engine, handle, round_after((1, 2), (3,)))
        text = [1, 2, *(3,)[: answer.accepted], *answer.next_tokens]
        for number in range(4 // steps):
            request = round_after(text, number=1 + number, steps=steps)
            text += verdict_of(engine, handle, request).next_tokens
        texts.append(text)
    assert texts[0] == texts[1]
    first = len(texts[0]) - 4
    rule = rule_of(Acceptance.REJECTION, WARM, gumbel_argmax)
    plain = round_after((1,))
    assert rule.draws(plain, first) == Coupled(WARM).draws(plain, first)
    rule.decide(round_after((1,), (2,)), 1, (0, 0), np.zeros((2, VOCAB), np.float32))
    assert rule.draws(plain, first)[0].sampling.seed != WARM.seed
    # As at the verifier that takes the session over.
    moved = rule_of(Acceptance.REJECTION, WARM, gumbel_argmax, drafted=True)
    assert moved.draws(plain, first) == rule.draws(plain, first)


def test_q_is_read_by_the_rules_that_need_it():
    """A draft that says it could be nothing else is judged otherwise than one drawn from many."""
    found = {}
    for acceptance in Acceptance:
        for with_q in (True, False):
            kept = [played(acceptance, state=state, with_q=with_q)[1] for state in range(6)]
            found[acceptance, with_q] = kept
    assert found[Acceptance.COUPLED, True] == found[Acceptance.COUPLED, False]
    for acceptance in OTHERS:
        assert found[acceptance, True] != found[acceptance, False]


@pytest.mark.parametrize("acceptance", OTHERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trees_are_for_coupled_alone(acceptance, temperature):
    engine = make_engine()
    sampling = SamplingParams(temperature=temperature)
    handle = engine.open(opening((1, 2, 3), sampling=sampling, acceptance=acceptance))
    with pytest.raises(InvalidRequest, match="coupled") as caught:
        engine.submit(handle, round_after((1, 2, 3), (4, 5), (-1, -1)))
    assert caught.value.param == "parents"
    assert len(verdict_of(engine, handle, round_after((1, 2, 3), (4, 5), (-1, 0))).next_tokens) == 1


@pytest.mark.parametrize(
    "q",
    [
        (Candidates((4, 100), (1, 1)),),
        (Candidates((4,), (1,)),) * 2,
        (Candidates((5,), (1,)),),
        (Candidates((4, 5), (0, 1)),),
    ],
)
@pytest.mark.parametrize("acceptance", list(Acceptance))
def test_a_bad_q_is_refused_and_leaves_the_session_usable(acceptance, q):
    engine = make_engine()
    handle = engine.open(opening((1, 2, 3), acceptance=acceptance))
    with pytest.raises(InvalidRequest) as caught:
        engine.submit(handle, round_after((1, 2, 3), (4,), q=q))
    assert caught.value.param.startswith("q")
    assert verdict_of(engine, handle, round_after((1, 2, 3), (4,))).accepted == 1


@pytest.mark.parametrize(
    ("draft", "q", "text"),
    [
        # Said to be nearly certain, and impossible; nearly impossible, and certain.
        ((50,), Candidates((50, 60), ((1 << 32) - 2, 1)), (4,)),
        ((4,), Candidates((4, 60), (1, (1 << 32) - 2)), (4, 5)),
        # Next to nothing is left over of p.
        ((50,), Candidates((50, 4), (1, (1 << 32) - 2)), (4,)),
    ],
)
@pytest.mark.parametrize("acceptance", OTHERS)
def test_a_lying_q_breaks_no_session(acceptance, draft, q, text):
    """The text's law is lost with a q that is not what the draft was drawn from, and no more."""
    engine = make_engine()
    # Of the counting model's tokens only the next number is left.
    sampling = SamplingParams(temperature=1.0, top_k=1, seed=3)
    handle = engine.open(opening((1, 2, 3), sampling=sampling, acceptance=acceptance))
    answer = verdict_of(engine, handle, round_after((1, 2, 3), draft, q=(q,)))
    assert (*draft[: answer.accepted], *answer.next_tokens) == text
    after = round_after((1, 2, 3, *text), number=1)
    assert verdict_of(engine, handle, after).next_tokens == (text[-1] + 1,)


@pytest.mark.parametrize("acceptance", OTHERS)
def test_bad_logits_end_only_their_own_round(acceptance):
    model = RandomModel(vocab=VOCAB)
    engine = make_engine(model)
    model.poisoned.add(3)
    good, bad = (
        engine.open(opening((first, 2), sampling=WARM, acceptance=acceptance)) for first in (1, 3)
    )
    engine.submit(good, round_after((1, 2), (4, 5)))
    engine.submit(bad, round_after((3, 2), (4, 5)))
    results = finish(engine)
    assert isinstance(results[good], Verdict)
    assert isinstance(results[bad], CorruptModelOutput)
    assert engine.corrupted == 1


def test_rules_share_a_forward_and_get_what_they_get_alone():
    model = RandomModel(vocab=VOCAB)
    engine = make_engine(model, kv_tokens=4096)
    games: dict[int, tuple[Acceptance, np.random.Generator, list[int], str]] = {}
    drafted: dict[int, Sequence[int]] = {}
    for state, acceptance in enumerate([*Acceptance, *Acceptance]):
        name = f"s{state}"
        asked = opening((1, 2, 3), sampling=WARM, acceptance=acceptance, session_id=name)
        games[engine.open(asked)] = (acceptance, np.random.default_rng(state), [1, 2, 3], name)
    for number in range(8):
        for handle, (_, rng, text, name) in games.items():
            tokens, q = random_draft(rng) if number % 3 != 1 else ((), ())
            request = round_after(text, tokens, number=number, steps=2, session_id=name, q=q)
            engine.submit(handle, request)
            drafted[handle] = tokens
        while engine.has_work:
            for handle, answer in engine.step():
                text = games[handle][2]
                text += [*drafted[handle][: answer.accepted], *answer.next_tokens]
    assert max(len(batch) for batch in model.batches) == len(games)
    for state, (acceptance, _, text, name) in enumerate(games.values()):
        assert text == played(acceptance, state=state, name=name)[0]


def test_a_rule_is_picked_once():
    assert rule_of(Acceptance.COUPLED, WARM, gumbel_argmax) == Coupled(WARM)
    for acceptance in OTHERS:
        assert isinstance(rule_of(acceptance, WARM, gumbel_argmax), Independent)
        assert rule_of(acceptance, SamplingParams(), gumbel_argmax).trees is False
