"""Streams become answers, turns become points, points a table."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pytest

from bench.compare.pairs import Pair
from bench.load.points import Costs, CountedTurn, Work, as_markdown, point, summary
from bench.load.run import LoadPlan, traffic_of
from bench.load.traffic import Answer, Turn, to_answer
from foredraft.errors import Unavailable
from foredraft_cli.prompts.sets import PromptSet


def line(tokens: list[int]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"token_ids": tokens}]}).encode() + b"\n"


def test_an_answer_has_its_tokens_and_when_they_came() -> None:
    lines = [(1.5, line([4, 5])), (1.6, b"\n"), (2.0, line([6])), (2.1, line([]))]
    answer = to_answer(1.0, [*lines, (2.2, b"data: [DONE]\n")])
    assert answer == Answer((4, 5, 6), 1.0, (1.5, 2.0))
    assert (answer.first_token_s, answer.gaps_s) == (0.5, [0.5])


def test_a_stream_with_an_error_or_without_tokens_is_none() -> None:
    with pytest.raises(Unavailable, match="full"):
        to_answer(0.0, [(1.0, b'data: {"error": {"message": "full"}}\n')])
    with pytest.raises(Unavailable, match="no tokens"):
        to_answer(0.0, [(1.0, b"HTTP 503\n")])


def turn(
    seconds: float, *texts: tuple[int, ...], gap: float = 0.1, work: Work | None = None
) -> CountedTurn:
    answers = [Answer(text, 0.0, tuple(gap * i for i in range(1, 4))) for text in texts]
    return CountedTurn(Turn(tuple(answers), seconds), work or Work(2, 4, 0.4))


def test_a_point_compares_turns_that_alternated() -> None:
    plain = [turn(1.0, (1, 2), (3, 4)), turn(2.0, (1, 2), (3, 4)), turn(1.0, (1, 2), (3, 4))]
    ours = [turn(0.5, (1, 2), (3, 4)), turn(1.0, (1, 2), (3, 5)), turn(1.0, (1, 2), (3, 4), gap=1)]
    found = point("pair", 2, 0.8, plain, ours)
    assert (found.plain, found.foredraft) == (4.0, 4.0)
    assert (found.ratio, found.low, found.high) == (2.0, 1.0, 2.0)
    assert found.identical == pytest.approx(5 / 6)
    assert found.plain_gap_p99 == pytest.approx(0.1)
    assert found.gap_p99 == 1.0
    assert (found.requests, found.turns) == (2, 3)
    assert "| pair | 0.8 | 2 | 4 | 4 | 2.00x (1.00 to 2.00) |" in as_markdown([found])
    assert "plain 4 tokens/s, Foredraft 4, 2.00x (1.00 to 2.00), 83% identical" in summary(found)


def test_what_a_token_took_is_counted_where_the_machine_changes_its_speed() -> None:
    plain = [turn(1.0, (1, 2), work=Work(2, 6, 0.8)), turn(2.0, (1, 2), work=Work(2, 6, 1.8))]
    ours = [turn(1.0, (1, 2), work=Work(10, 30, 2.9) - Work(9, 25, 2.0))]
    found = point("pair", 1, 0.0, plain[:1], ours)
    assert found.costs == Costs(0.5, 2.5, pytest.approx(50))
    assert "| 1.000, 3.00, 100.00 | 0.500, 2.50, 50.00 | 100% |" in as_markdown([found])
    assert point("pair", 1, 0.0, plain, plain).plain_costs == Costs(1.0, 3.0, pytest.approx(100))


def test_a_turn_takes_prompts_of_every_set_in_turn_and_enough_of_them() -> None:
    sets = (PromptSet("a", ((1,), (2,), (3,))), PromptSet("b", ((9,),)))
    pair = cast(Pair, SimpleNamespace(sets=sets))
    plan = LoadPlan(least_requests=8)
    traffic = traffic_of(pair, plan, 1, 0.0)
    assert traffic.prompts == ((1,), (9,), (2,), (3,), (1,), (9,), (2,), (3,))
    assert [len(traffic_of(pair, plan, n, 0.0).prompts) for n in (4, 16, 64)] == [32, 32, 128]


def test_answers_have_all_lengths_from_half_to_one_and_a_half_times_the_tokens() -> None:
    plan = LoadPlan(max_tokens=64)
    assert sorted(plan.length(index) for index in range(65)) == list(range(32, 97))
