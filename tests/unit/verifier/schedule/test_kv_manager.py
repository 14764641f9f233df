"""Sessions that share KV or lose it to one another commit what each would alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import Overloaded
from foredraft.messages import Verdict
from foredraft.types import SamplingParams, TokenLogprobs
from tests.support.examples import examples
from tests.support.verifiers import (
    BLOCK,
    CountingModel,
    RandomModel,
    finish,
    make_engine,
    opening,
    round_after,
)

PROMPT = [7 * i % 90 for i in range(3 * BLOCK + 5)]


def fed(model: CountingModel) -> int:
    """How many rows went through the model."""
    return sum(len(segment.tokens) for batch in model.batches for segment in batch)


@pytest.mark.parametrize("rows", [8, 16, 64])
def test_sessions_opened_at_once_read_a_common_prompt_once(rows: int) -> None:
    model = CountingModel()
    engine = make_engine(model, prefill_rows=rows, row_budget=256)
    handles = [engine.open(opening(PROMPT, session_id=f"s{i}")) for i in range(4)]
    for i, handle in enumerate(handles):
        engine.submit(handle, round_after(PROMPT, session_id=f"s{i}"))
    results = finish(engine)
    assert all(results[handle].next_tokens == (PROMPT[-1] + 1,) for handle in handles)
    # The whole blocks once; what is behind them, and the last token, by each.
    assert fed(model) == 3 * BLOCK + 4 * 5
    assert engine.kv.shared_tokens == 3 * 3 * BLOCK
    # One of them read the prompt, and each says what it was spared.
    assert sorted(results[h].cached_tokens for h in handles) == [0, *[3 * BLOCK] * 3]
    for handle in handles:
        engine.close(handle)
    assert model.pool.available == model.pool.total


def test_a_follow_up_reads_only_what_is_new() -> None:
    model = CountingModel()
    engine = make_engine(model)
    first = engine.open(opening(PROMPT, new=60))
    text = list(PROMPT)
    for number in range(4):
        engine.submit(first, round_after(text, number=number, steps=8))
        text += finish(engine)[first].next_tokens
    engine.close(first)
    before = fed(model)
    asked = [*text, 3, 4]
    again = engine.open(opening(asked, new=10))
    engine.submit(again, round_after(asked))
    assert finish(engine)[again].next_tokens == (5,)
    assert fed(model) - before <= BLOCK + 2


def test_other_salts_share_nothing_and_prompt_logprobs_are_heard_in_full() -> None:
    model = RandomModel()
    engine = make_engine(model)
    told: list[tuple[TokenLogprobs, ...]] = []
    for number in range(2):
        asked = opening(PROMPT, session_id=f"s{number}")
        salted = engine.open(replace(asked, cache_salt=str(number)))
        prompt_logprobs = engine.open(replace(asked, logprobs=1, prompt_logprobs=True))
        engine.submit(prompt_logprobs, round_after(PROMPT, session_id=f"s{number}"))
        told.append(finish(engine)[prompt_logprobs].prompt_logprobs)
        engine.close(salted)
        engine.close(prompt_logprobs)
    assert engine.kv.shared_tokens == 0
    assert len(told[0]) == len(PROMPT) - 1 and told[0] == told[1]


def test_an_idle_session_gives_way_and_reads_its_text_again() -> None:
    model = CountingModel()
    engine = make_engine(model, kv_tokens=6 * BLOCK, overcommit=2.0)
    idle = engine.open(opening(PROMPT, session_id="idle", new=20, draft=4))
    engine.submit(idle, round_after(PROMPT, session_id="idle"))
    [token] = finish(engine)[idle].next_tokens
    other = [t + 1 for t in PROMPT]
    busy = engine.open(opening(other, session_id="busy", new=20, draft=4))
    engine.submit(busy, round_after(other, session_id="busy"))
    assert finish(engine)[busy].next_tokens == (other[-1] + 1,)
    assert engine.preempted == 1 and not engine.kv.table(idle)
    engine.submit(idle, round_after([*PROMPT, token], session_id="idle", number=1))
    assert finish(engine)[idle].next_tokens == (token + 1,)
    assert engine.preempted == 2


@examples(60)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([0.0, 0.9]),
)
def test_whatever_is_shared_or_taken_the_texts_are_those_of_sessions_alone(
    seed: int, overcommit: float, temperature: float
) -> None:
    rng = random.Random(seed)
    sampling = SamplingParams(temperature=temperature, seed=5)
    model = RandomModel(vocab=4)
    engine = make_engine(
        model,
        kv_tokens=10 * BLOCK,
        overcommit=overcommit,
        prefill_rows=rng.choice([5, 16, 40]),
    )
    beginnings = [[rng.randrange(4) for _ in range(50)] for _ in range(2)]
    texts: dict[int, tuple[str, list[int], int]] = {}
    numbers: dict[int, int] = {}
    waiting: dict[int, tuple[int, ...]] = {}
    done: list[tuple[list[int], int]] = []
    for turn in range(120):
        if rng.random() < 0.2:
            prefix = rng.choice(beginnings)[: rng.randrange(1, 50)]
            asked = opening(prefix, session_id=f"s{turn}", new=40, sampling=sampling)
            try:
                handle = engine.open(asked)
            except Overloaded:
                continue
            texts[handle], numbers[handle] = (f"s{turn}", list(prefix), len(prefix)), 0
        for handle, (name, text, start) in list(texts.items()):
            if len(text) - start > 25 or rng.random() < 0.03:
                engine.close(handle)
                waiting.pop(handle, None)
                done.append((text, start))
                del texts[handle]
            elif handle not in waiting and rng.random() < 0.6:
                draft = tuple(rng.randrange(4) for _ in range(rng.randrange(5)))
                asked_round = round_after(
                    text, draft, number=numbers[handle], steps=3, session_id=name
                )
                engine.submit(handle, asked_round)
                waiting[handle] = draft
                numbers[handle] += 1
        if engine.has_work:
            for handle, result in engine.step():
                assert isinstance(result, Verdict)
                draft = waiting.pop(handle)
                texts[handle][1].extend([*draft[: result.accepted], *result.next_tokens])
    for handle, (_, text, start) in texts.items():
        engine.close(handle)
        done.append((text, start))
    assert model.pool.available == model.pool.total
    assert engine.kv.used_tokens == 0
    alone = make_engine(RandomModel(vocab=4))
    for text, start in done:
        handle = alone.open(opening(text[:start], new=40, sampling=sampling))
        plain = text[:start]
        for number in range(40):
            if len(plain) >= len(text):
                break
            alone.submit(handle, round_after(plain, number=number, steps=8))
            plain += finish(alone)[handle].next_tokens
        assert plain[: len(text)] == text
        alone.close(handle)
