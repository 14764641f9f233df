"""A value made ahead of need: handed out once, not too old, made again after it was taken."""

from __future__ import annotations

import asyncio

import pytest

from deployments.serve.prefetch import Spare
from foredraft.errors import Unavailable


class Source:
    def __init__(self) -> None:
        self.made = 0
        self.fails = False
        self.now = 0.0

    async def make(self) -> int:
        await asyncio.sleep(0)
        if self.fails:
            raise Unavailable("none")
        self.made += 1
        return self.made

    def spare(self) -> Spare[int]:
        return Spare(self.make, lambda: self.now, keep_s=5.0, refill_s=0.0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_next_value_is_there_before_it_is_asked_for() -> None:
    source = Source()
    spare = source.spare()
    assert await spare.take() == 1
    await settle()
    assert source.made == 2
    assert await spare.take() == 2


async def test_values_asked_for_at_once_are_all_different() -> None:
    source = Source()
    spare = source.spare()
    await spare.take()
    await settle()
    taken = await asyncio.gather(*(spare.take() for _ in range(4)))
    assert len(set(taken)) == 4


async def test_an_old_value_is_not_handed_out() -> None:
    source = Source()
    spare = source.spare()
    await spare.take()
    await settle()
    source.now = 5.1
    assert await spare.take() == 3


async def test_a_failure_ahead_of_need_costs_nobody_and_one_in_need_is_raised() -> None:
    source = Source()
    spare = source.spare()
    await spare.take()
    source.fails = True
    await settle()
    with pytest.raises(Unavailable):
        await spare.take()
    source.fails = False
    assert await spare.take() == 2
