"""A batch waits for the rest of a burst where batches cost much and blocks little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drafter_service.bursts import BatchCosts, Bursts


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


def run(
    sessions: int, cost: Callable[[int], float], rounds: int = 60, gap_s: float = 0.02
) -> list[int]:
    """The batches of sessions whose proposals come in bursts, each ten seconds after the last."""
    bursts, batches = Bursts(), []
    for number in range(rounds):
        now, waiting = 10.0 * number, 0
        arrivals = [now + gap_s * place for place in range(sessions)]
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
            bursts.done(waiting, seconds)
            batches.append(waiting)
            # What comes meanwhile is taken note of as it comes.
            end = now + seconds
            while arrivals and arrivals[0] <= end:
                bursts.arrived(arrivals.pop(0))
                waiting += 1
            waiting -= batches[-1]
            now = end
    return batches


def test_a_burst_ends_up_in_one_batch() -> None:
    batches = run(16, flat)
    assert batches[:2] == [1, 15]
    assert batches[-5:] == [16] * 5


def test_where_each_block_costs_the_same_no_batch_waits() -> None:
    assert run(16, linear, gap_s=0.3)[-1] < 16
    assert run(1, flat) == [1] * 60
