from dataclasses import replace

import numpy as np
import pytest

from drafter_service.kv_slots import KVSlots
from drafter_service.proposals.lattice import BlockScores
from foredraft.errors import CorruptModelOutput, InvalidRequest, Overloaded, PrefixMismatch
from foredraft.messages import DraftBlock, DraftOpened
from foredraft.types import Guess, SamplingParams
from tests.support.drafters import (
    INFO,
    ScriptedLM,
    asking,
    counting,
    engine_of,
    opening,
)


def expected(prefix, count):
    return tuple(1 + (prefix[-1] + j) % 15 for j in range(count))


def opened(engine, *sessions, prefix=(3, 4, 5)):
    return [engine.open(opening(name, prefix))[0] for name in sessions]


def fed(model):
    """(start, tokens) of each session's part of each pass."""
    return [[(r.start, tuple(r.tokens)) for r in part] for part in model.passes]


def test_open_answers_with_the_model_and_its_longest_block():
    _, answer = engine_of(ScriptedLM(counting)).open(opening("s", (1,)))
    assert answer == DraftOpened(INFO, 8)


def test_many_sessions_share_one_pass_and_equal_one_by_one():
    together, alone = ScriptedLM(counting), ScriptedLM(counting)
    prefixes = [(3, 4, 5), (7,), (9, 1)]
    engine = engine_of(together)
    requests = [
        (engine.open(opening(f"s{i}", p))[0], asking(f"s{i}", p, len(p), i + 2))
        for i, p in enumerate(prefixes)
    ]
    blocks = engine.propose(requests)
    assert len(together.passes) == 1
    assert {b.timings.batch_rows for b in blocks} == {3 + 3 + 1 + 4 + 2 + 5}
    for i, p in enumerate(prefixes):
        single = engine_of(alone)
        handle = single.open(opening(f"s{i}", p))[0]
        [block] = single.propose([(handle, asking(f"s{i}", p, len(p), i + 2))])
        assert (block.tokens, block.guesses) == (blocks[i].tokens, blocks[i].guesses)
        assert block.tokens == expected(p, i + 2)
        assert block.guesses == (Guess(i + 1, expected(p, i + 3)[-1], 1.0),)


def test_only_what_changed_is_fed_again():
    model = ScriptedLM(counting)
    engine = engine_of(model)
    [s] = opened(engine, "s")
    ask = lambda prefix, keep: engine.propose([(s, asking("s", prefix, keep, 2))])[0]  # noqa: E731
    ask((3, 4, 5), 3)
    # A predicted continuation, then its confirmation under the old keep_len, then a miss.
    ask((3, 4, 5, 6, 7, 8), 3)
    ask((3, 4, 5, 6, 7, 8, 9), 3)
    block = ask((3, 4, 5, 6, 2), 4)
    assert fed(model) == [
        [(0, (3, 4, 5))],
        [(3, (6, 7, 8))],
        [(6, (9,))],
        [(4, (2,))],
    ]
    assert block.tokens == expected((2,), 2)


def test_the_same_question_twice_gives_the_same_block():
    engine = engine_of(ScriptedLM(counting))
    [s] = opened(engine, "s")
    ask = asking("s", (3, 4, 5), 3, 4)
    [first], [second] = engine.propose([(s, ask)]), engine.propose([(s, ask)])
    assert first.tokens == second.tokens == expected((5,), 4)


def test_an_evicted_session_is_rebuilt():
    model = ScriptedLM(counting, slots=2)
    engine = engine_of(model)
    names = ["a", "b", "c"]
    handles = opened(engine, *names)
    for _ in range(2):
        for handle, name in zip(handles, names, strict=True):
            [block] = engine.propose([(handle, asking(name, (3, 4, 5), 3, 2))])
            assert block.tokens == expected((5,), 2)
    assert engine.evictions == 4
    # More sessions than slots in one call: several passes, each within the slots.
    blocks = engine.propose(
        [(h, asking(n, (3, 4, 5), 3, 2)) for h, n in zip(handles, names, strict=True)]
    )
    assert [b.tokens for b in blocks] == [expected((5,), 2)] * 3


def test_a_long_prefix_is_fed_in_chunks():
    model = ScriptedLM(counting)
    engine = engine_of(model, prefill_rows=4)
    prefix = tuple(range(1, 12))
    handle = engine.open(opening("s", prefix))[0]
    [block] = engine.propose([(handle, asking("s", prefix, 11, 2))])
    assert [[len(tokens) for _, tokens in part] for part in fed(model)] == [[4], [4], [3]]
    assert block.tokens == expected(prefix, 2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"prefix": (3, 99)}, InvalidRequest),
        ({"prefix": ()}, InvalidRequest),
        ({"max_len": 2}, InvalidRequest),
        ({"max_len": 65}, InvalidRequest),
        ({"sampling": SamplingParams(temperature=-1)}, InvalidRequest),
        ({"sampling": SamplingParams(top_p=0)}, InvalidRequest),
    ],
)
def test_a_bad_open_allocates_nothing(change, error):
    engine = engine_of(ScriptedLM(counting))
    with pytest.raises(error):
        engine.open(replace(opening("s", (3, 4, 5)), **change))
    assert engine.sessions == 0


def test_sessions_are_bounded_and_closing_makes_room():
    engine = engine_of(ScriptedLM(counting), max_sessions=1)
    [s] = opened(engine, "s")
    with pytest.raises(Overloaded):
        engine.open(opening("t", (1,)))
    engine.close(s)
    engine.close(s)
    opened(engine, "t")


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda: asking("s", (3, 4, 6), 3, 2), PrefixMismatch),
        (lambda: asking("other", (3, 4, 5), 3, 2), PrefixMismatch),
        (lambda: asking("s", (3, 4, 5), 3, 9), InvalidRequest),
        (lambda: asking("s", (3, 4, 5), 3, 0), InvalidRequest),
        (lambda: asking("s", (3, 4, 5, 99), 3, 2), InvalidRequest),
        (lambda: asking("s", (3, 4, 5, 6), 4, 2), InvalidRequest),
        (lambda: asking("s", tuple([1] * 41), 0, 2), InvalidRequest),
    ],
)
def test_a_bad_proposal_disturbs_nobody(request_of, error):
    engine = engine_of(ScriptedLM(counting))
    s, t = opened(engine, "s", "t")
    bad, good = engine.propose([(s, request_of()), (t, asking("t", (3, 4, 5), 3, 2))])
    assert isinstance(bad, error)
    assert isinstance(good, DraftBlock)
    [again] = engine.propose([(s, asking("s", (3, 4, 5), 3, 2))])
    assert again.tokens == expected((5,), 2)


def test_an_unknown_handle_is_a_mismatch():
    [answer] = engine_of(ScriptedLM(counting)).propose([(7, asking("s", (1,), 0, 2))])
    assert isinstance(answer, PrefixMismatch)


def test_scores_that_are_not_finite_are_refused_for_that_session_only():
    def script(prefix, num_slots):
        good = counting(prefix, num_slots)
        return BlockScores(good.tokens, good.log_q * np.nan) if prefix[-1] == 9 else good

    engine = engine_of(ScriptedLM(script))
    s, t = opened(engine, "s", "t")
    bad, good = engine.propose(
        [(s, asking("s", (3, 4, 5, 9), 3, 2)), (t, asking("t", (3, 4, 5), 3, 2))]
    )
    assert isinstance(bad, CorruptModelOutput)
    assert good.tokens == expected((5,), 2)


def test_a_family_without_a_prefix_cache_gets_the_whole_prefix():
    model = ScriptedLM(counting)
    model.capabilities = replace(model.capabilities, prefix_kv="none")
    engine = engine_of(model, prefill_rows=2)
    [s] = opened(engine, "s")
    engine.propose([(s, asking("s", (3, 4, 5), 3, 2))])
    engine.propose([(s, asking("s", (3, 4, 5, 6), 3, 2))])
    assert fed(model) == [[(0, (3, 4, 5))], [(0, (3, 4, 5, 6))]]


def test_near_the_longest_sequence_blocks_get_shorter():
    engine = engine_of(ScriptedLM(counting))
    handle = engine.open(opening("s", (1,), max_len=64))[0]

    def ask(length):
        prefix = tuple(1 + i % 15 for i in range(length))
        return engine.propose([(handle, asking("s", prefix, 1, 8))])[0]

    assert [len(ask(length).tokens) for length in (55, 56, 60, 63)] == [8, 8, 4, 1]
    assert isinstance(ask(64), InvalidRequest)


def test_slots_give_way_in_order_of_use():
    slots = KVSlots(2)
    a, _ = slots.acquire(1, 9)
    slots.store(1, 5)
    b, _ = slots.acquire(2, 9)
    assert slots.acquire(1, 9) == (a, 5)
    assert slots.acquire(3, 9) == (b, 0)
    slots.limit(1, 2)
    assert slots.acquire(1, 9) == (a, 2)
    slots.release(1)
    slots.release(1)
    # Its slot is free once, and the other session's is not.
    assert (slots.acquire(4, 9), slots.evictions) == ((a, 0), 1)
    assert (slots.acquire(5, 9), slots.evictions) == ((b, 0), 2)
