"""What requests do to the logits: each rule by hand, and the same text with drafts and without."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import InvalidRequest
from foredraft.types import LogitsParams, SamplingParams, TokenLogprobs
from tests.support.verifiers import RandomModel, make_engine, opening, round_after, verdict_of
from verifier_service.rules.logits import LogitsProcessors
from verifier_service.rules.logprobs import token_logprobs

INF = math.inf
ROW = (1.0, -1.0, 2.0, 0.5)


def processed(
    params: LogitsParams,
    text: tuple[int, ...] = (),
    branch: tuple[int, ...] = (),
    stops: frozenset[int] = frozenset(),
) -> list[float]:
    rows = np.array([ROW], dtype=np.float32)
    LogitsProcessors(params, stops, len(ROW), text).apply(rows, [branch])
    return rows[0].tolist()


@pytest.mark.parametrize(
    ("params", "text", "branch", "expected"),
    [
        (LogitsParams(allowed_token_ids=(1, 3)), (), (), [-INF, -1, -INF, 0.5]),
        (LogitsParams(logit_bias=((0, 2.5), (3, -100))), (), (), [3.5, -1, 2, -99.5]),
        # Token 0 is the prompt's; 1 was generated twice, the second time in the draft.
        (LogitsParams(prompt_len=1, presence_penalty=0.5), (0, 1), (1,), [1, -1.5, 2, 0.5]),
        (LogitsParams(prompt_len=1, frequency_penalty=0.5), (0, 1), (1,), [1, -2, 2, 0.5]),
        (LogitsParams(prompt_len=1, repetition_penalty=2), (0, 1), (3,), [0.5, -2, 2, 0.25]),
        (LogitsParams(prompt_len=1, min_tokens=2), (0, 1), (), [1, -1, -INF, 0.5]),
        (LogitsParams(prompt_len=1, min_tokens=2), (0, 1), (3,), [1, -1, 2, 0.5]),
        (LogitsParams(min_tokens=9, allowed_token_ids=(0, 2)), (), (), [1, -INF, -INF, -INF]),
    ],
)
def test_each_rule_by_hand(
    params: LogitsParams, text: tuple[int, ...], branch: tuple[int, ...], expected: list[float]
) -> None:
    assert processed(params, text, branch, frozenset({2})) == expected


def test_a_session_that_asks_for_nothing_is_left_alone() -> None:
    processors = LogitsProcessors(LogitsParams(prompt_len=3), frozenset({1}), 1 << 30, (0, 1, 2))
    assert processors.idle


all_params = st.builds(
    LogitsParams,
    st.integers(0, 3),
    st.sampled_from((1.0, 1.3, 0.8)),
    st.sampled_from((0.0, 0.7, -0.5)),
    st.sampled_from((0.0, 0.3)),
    st.integers(0, 6),
    st.sampled_from(((), ((0, 1.5), (2, -3.0)))),
    st.sampled_from(((), (0, 1, 3))),
)
texts = st.lists(st.integers(0, 3), max_size=6).map(tuple)
long_texts = st.lists(st.integers(0, 3), min_size=3, max_size=6).map(tuple)


@given(all_params, long_texts, texts)
def test_a_branch_counts_as_text(
    params: LogitsParams, text: tuple[int, ...], branch: tuple[int, ...]
) -> None:
    stops = frozenset({1})
    assert processed(params, text, branch, stops) == processed(params, text + branch, (), stops)


def test_logprobs_by_hand() -> None:
    row = np.log(np.array([0.1, 0.4, 0.4, 0.1], dtype=np.float32)) + np.float32(3)
    told = token_logprobs(row, 2, 3)
    assert told.logprob == pytest.approx(math.log(0.4), abs=1e-6)
    assert told.rank == 2
    assert [token for token, _ in told.top] == [1, 2, 0]
    unlikely = token_logprobs(row, 0, 0)
    assert unlikely == TokenLogprobs(unlikely.logprob, 4)
    assert unlikely.logprob == pytest.approx(math.log(0.1))


PROMPT = (1, 2, 3)
STOPS = frozenset({4, 13})
SHAPES = {
    "allowed": LogitsParams(allowed_token_ids=tuple(range(3, 12))),
    "bias": LogitsParams(logit_bias=tuple((t, 1.5) for t in range(3, 9))),
    # The prompt counts as generated, so that the first token feels it.
    "penalties": LogitsParams(repetition_penalty=3.0, presence_penalty=1.5, frequency_penalty=1.0),
    "min_tokens": LogitsParams(min_tokens=12, prompt_len=3),
}


def spoken(
    shape: LogitsParams, sampling: SamplingParams, truth: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[TokenLogprobs, ...]]:
    """A text of up to 24 tokens: drafts are cut from truth, one token wrong, with a true sibling.

    Without truth it is decoded plainly.
    """
    engine = make_engine(RandomModel(vocab=20))
    asked = opening(PROMPT, new=24, draft=12, stop=tuple(STOPS), sampling=sampling)
    handle = engine.open(replace(asked, logits=shape, logprobs=2))
    text, number = list(PROMPT), 0
    told: list[TokenLogprobs] = []
    while len(text) < 27 and not STOPS.intersection(text):
        while engine.has_work:
            engine.step()
        draft = truth[len(text) - 3 :][: min(6, 26 - len(text))]
        tokens, parents = draft, tuple(range(-1, len(draft) - 1))
        if len(draft) > 2:
            # Node 2 is wrong; what is right hangs on node 1 beside it.
            tokens = (*draft[:2], (draft[2] + 1) % 20, *draft[2:])
            parents = (-1, 0, 1, 1, *range(3, len(tokens) - 1))
        verdict = verdict_of(
            engine, handle, round_after(text, tokens, parents, number=number, steps=4)
        )
        text += [*(tokens[node] for node in verdict.kept), *verdict.next_tokens]
        told += verdict.logprobs
        number += 1
    assert len(told) == len(text) - 3
    # What follows a stop token or the last one is for the orchestrator to cut.
    stop = next((at for at, token in enumerate(text) if token in STOPS), 26)
    return tuple(text[3 : stop + 1]), tuple(told[: stop - 2])


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_drafts_change_neither_tokens_nor_logprobs(shape: LogitsParams, temperature: float) -> None:
    sampling = SamplingParams(temperature, seed=5)
    plain = spoken(shape, sampling, ())
    assert plain[0] != spoken(LogitsParams(), sampling, ())[0]
    assert spoken(shape, sampling, plain[0]) == plain
    assert spoken(shape, sampling, plain[0][:3] + (5,) * 20) == plain


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logits": LogitsParams(prompt_len=4)}, "prompt_len"),
        ({"logits": LogitsParams(repetition_penalty=0.0)}, "repetition_penalty"),
        ({"logits": LogitsParams(presence_penalty=2.5)}, "presence_penalty"),
        ({"logits": LogitsParams(frequency_penalty=math.nan)}, "frequency_penalty"),
        ({"logits": LogitsParams(logit_bias=((100, 1.0),))}, "logit_bias"),
        ({"logits": LogitsParams(logit_bias=((1, 1.0), (1, 2.0)))}, "logit_bias"),
        ({"logits": LogitsParams(logit_bias=((1, INF),))}, "logit_bias"),
        ({"logits": LogitsParams(allowed_token_ids=(100,))}, "allowed_token_ids"),
        ({"logits": LogitsParams(allowed_token_ids=(7,), min_tokens=1)}, "min_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": True}, "prompt_logprobs"),
    ],
)
def test_what_is_out_of_range_is_refused_by_its_name(fields: dict[str, object], param: str) -> None:
    engine = make_engine()
    with pytest.raises(InvalidRequest) as refused:
        engine.open(replace(opening(stop=(7,)), **fields))  # type: ignore[arg-type]
    assert refused.value.param == param
    assert not engine.kv.sessions


def test_logprobs_of_the_prefix_come_with_the_first_verdict() -> None:
    prefix = tuple(range(1, 12))
    model = RandomModel(vocab=20)
    engine = make_engine(model, row_budget=4, prefill_rows=4)
    asked = replace(opening(prefix), logprobs=2, prompt_logprobs=True)
    handle = engine.open(asked)
    other = engine.open(opening((3, 4), session_id="other"))
    while engine.has_work:
        engine.step()
    first = verdict_of(engine, handle, round_after(prefix, steps=2))
    expected = [
        token_logprobs(model.logits(prefix[:n]).astype(np.float32), prefix[n], 2)
        for n in range(1, len(prefix))
    ]
    assert list(first.prompt_logprobs) == expected
    text = (*prefix, *first.next_tokens)
    assert verdict_of(engine, handle, round_after(text, number=1)).prompt_logprobs == ()
    alone = verdict_of(engine, other, round_after((3, 4), session_id="other"))
    assert alone.prompt_logprobs == ()


def test_a_prefix_may_be_told_of_in_the_forward_that_decides() -> None:
    prefix = tuple(range(1, 6))
    model = RandomModel(vocab=20)
    engine = make_engine(model)
    handle = engine.open(replace(opening(prefix), logprobs=0, prompt_logprobs=True))
    verdict = verdict_of(engine, handle, round_after(prefix, (7, 8)))
    assert len(model.batches) == 1
    assert len(verdict.prompt_logprobs) == 4
    plain = make_engine(RandomModel(vocab=20))
    other = plain.open(opening(prefix))
    same = verdict_of(plain, other, round_after(prefix, (7, 8)))
    assert (verdict.accepted, verdict.next_tokens) == (same.accepted, same.next_tokens)
