"""A batch waits for the rest of a burst where batches cost much and blocks little."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.bursts import BatchCosts, Bursts, best_wait


def flat(blocks: int) -> float:
    return 1.0


def linear(blocks: int) -> float:
    return 0.2 * blocks


def test_fixed_costs_are_told_from_those_of_blocks() -> None:
    costs = BatchCosts()
    assert costs.fixed_s == 0.0
    for _ in range(20):
        costs.observe(4, 1.4)
    # One size says nothing of the others.
    assert costs.fixed_s == 0.0
    for blocks in (1, 8, 2, 16):
        costs.observe(blocks, 1.0 + 0.1 * blocks)
    assert costs.fixed_s == pytest.approx(1.0)


def run(times: Sequence[float], cost: Callable[[int], float], rounds: int = 60) -> list[list[int]]:
    """The batches of bursts, one every ten seconds, whose proposals come at times after it."""
    bursts = Bursts()
    batches: list[list[int]] = []
    for number in range(rounds):
        now, waiting = 10.0 * number, 0
        arrivals = [now + each for each in times]
        batches.append([])
        while arrivals or waiting:
            if not waiting:
                now = max(now, arrivals[0])
            while arrivals and arrivals[0] <= now:
                bursts.arrived(arrivals.pop(0))
                waiting += 1
            wait_s = bursts.patience_s(now, waiting)
            if wait_s > 0:
                now = min(now + wait_s, arrivals[0] if arrivals else now + wait_s)
                continue
            seconds = cost(waiting)
            batches[-1].append(waiting)
            # What comes meanwhile is taken note of as it comes.
            end = now + seconds
            while arrivals and arrivals[0] <= end:
                bursts.arrived(arrivals.pop(0))
                waiting += 1
            bursts.done(end, batches[-1][-1], seconds)
            waiting -= batches[-1][-1]
            now = end
    return batches


def evenly(count: int, gap_s: float) -> list[float]:
    return [gap_s * place for place in range(count)]


def test_a_burst_ends_up_in_one_batch() -> None:
    batches = run(evenly(16, 0.02), flat)
    assert batches[0] == [1, 15]
    assert batches[-5:] == [[16]] * 5


def test_pauses_in_a_burst_do_not_end_it() -> None:
    """Proposals come a few at a time, as a loop reads them."""
    times = [place // 4 * 0.12 + place * 1e-4 for place in range(16)]
    assert run(times, flat)[-5:] == [[16]] * 5


def test_a_burst_that_lasts_as_long_as_a_batch_is_not_waited_for() -> None:
    assert len(run(evenly(16, 0.12), flat)[-1]) > 1


def test_where_each_block_costs_the_same_no_batch_waits() -> None:
    assert run(evenly(16, 0.3), linear)[-1][0] == 1
    assert run([0.0], flat) == [[1]] * 60


def test_a_batch_begins_when_all_wait_least() -> None:
    # Three come in the first quarter: they wait for the end otherwise.
    assert best_wait(1, [3, 0, 0, 0]) == 1
    # One comes last: it is left.
    assert best_wait(3, [0, 0, 0, 1]) == 0
    assert best_wait(1, [0, 0, 0, 0]) == 0


@given(st.integers(1, 8), st.lists(st.floats(0, 4), min_size=1, max_size=6))
def test_no_other_beginning_has_less_waiting(present: int, coming: list[float]) -> None:
    parts = len(coming)

    def waited(start: int) -> float:
        late = sum(n * (start + parts - at - 0.5) for at, n in enumerate(coming) if at >= start)
        early = sum(n * (start - at - 0.5) for at, n in enumerate(coming) if at < start)
        return present * start + early + late

    best = best_wait(present, coming)
    assert all(waited(best) <= waited(start) + 1e-9 for start in range(parts + 1))
