"""A choice made ahead of need: handed out once, not too old; one replica alone is for all."""

from __future__ import annotations

import asyncio

import pytest

from deployments.serve.choices import Choices
from foredraft.errors import Unavailable


class Source:
    def __init__(self) -> None:
        self.made = 0
        self.fails = False
        self.now = 0.0
        self.same = False

    async def make(self) -> int:
        await asyncio.sleep(0)
        if self.fails:
            raise Unavailable("none")
        self.made += 1
        return 0 if self.same else self.made

    def choices(self) -> Choices[int]:
        return Choices(self.make, lambda: self.now, keep_s=5.0, again_s=1.0, refill_s=0.0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_next_value_is_there_before_it_is_asked_for() -> None:
    source = Source()
    choices = source.choices()
    assert await choices.take() == 1
    await settle()
    assert source.made == 2
    assert await choices.take() == 2


async def test_values_asked_for_at_once_are_all_different() -> None:
    source = Source()
    choices = source.choices()
    await choices.take()
    await settle()
    taken = await asyncio.gather(*(choices.take() for _ in range(4)))
    assert len(set(taken)) == 4


async def test_an_old_value_is_not_handed_out() -> None:
    source = Source()
    choices = source.choices()
    await choices.take()
    await settle()
    source.now = 5.1
    assert await choices.take() == 3


async def test_a_failure_ahead_of_need_costs_nobody_and_one_in_need_is_raised() -> None:
    source = Source()
    choices = source.choices()
    await choices.take()
    source.fails = True
    await settle()
    with pytest.raises(Unavailable):
        await choices.take()
    source.fails = False
    assert await choices.take() == 2


async def test_one_replica_alone_is_asked_for_once_a_second() -> None:
    source = Source()
    source.same = True
    choices = source.choices()
    for _ in range(4):
        await choices.take()
        await settle()
    made = source.made
    for _ in range(20):
        assert await choices.take() == 0
        await settle()
    assert source.made == made
    source.now = 1.1
    await choices.take()
    await settle()
    assert source.made == made + 1


async def test_a_second_replica_ends_that_as_soon_as_it_is_chosen() -> None:
    source = Source()
    source.same = True
    choices = source.choices()
    for _ in range(6):
        await choices.take()
        await settle()
    source.now, source.same = 1.1, False
    await choices.take()
    await settle()
    assert len({await choices.take() for _ in range(4)}) == 4


async def test_after_a_failure_the_next_choice_is_a_new_one() -> None:
    source = Source()
    source.same = True
    choices = source.choices()
    for _ in range(6):
        await choices.take()
        await settle()
    made = source.made
    choices.failed()
    await choices.take()
    assert source.made == made + 1
