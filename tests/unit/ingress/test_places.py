"""Places and lines: who waits, whose turn it is, and that no place is ever lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from deployments.ingress.direct.places import Places
from foredraft.errors import Overloaded


class Visit:
    """A request that stays until it is told to go."""

    def __init__(self, places: Places, tenant: str, entered: list[str]) -> None:
        self.go = asyncio.Event()
        self.tenant = tenant
        self._places, self._entered = places, entered
        self.task = asyncio.create_task(self._stay())

    async def _stay(self) -> None:
        async with self._places.place(self.tenant):
            self._entered.append(self.tenant)
            await self.go.wait()

    async def leave(self) -> None:
        self.go.set()
        await self.task


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_free_place_goes_to_the_tenant_with_the_fewest() -> None:
    entered: list[str] = []
    places = Places(2, 10, 60.0)
    many = [Visit(places, "many", entered) for _ in range(6)]
    await settled()
    few = [Visit(places, "few", entered) for _ in range(2)]
    await settled()
    assert entered == ["many", "many"]
    await many[0].leave()
    await settled()
    assert entered == ["many", "many", "few"]
    await many[1].leave()
    await settled()
    # Both have none but for the one that runs: it is the turn of who has fewer.
    assert entered[3] == "many"
    for visit in (*many[2:], *few):
        visit.go.set()
    await asyncio.gather(*(visit.task for visit in (*many, *few)))
    assert Counter(entered) == {"many": 6, "few": 2}


async def test_where_too_many_wait_the_longest_line_loses_its_newest() -> None:
    entered: list[str] = []
    places = Places(1, 3, 60.0)
    many = [Visit(places, "many", entered) for _ in range(4)]
    await settled()
    few = Visit(places, "few", entered)
    await settled()
    with pytest.raises(Overloaded):
        await many[3].task
    # No longer than the others: nobody is put out for one more.
    again = Visit(places, "many", entered)
    await settled()
    with pytest.raises(Overloaded):
        await again.task
    for visit in (*many[:3], few):
        visit.go.set()
    await asyncio.gather(*(visit.task for visit in (*many[:3], few)))
    # Of equals the one that has waited longer comes first.
    assert entered == ["many", "many", "few", "many"]


async def test_who_waits_too_long_is_refused_and_leaves_no_trace() -> None:
    entered: list[str] = []
    places = Places(1, 3, 0.01)
    first, late = Visit(places, "a", entered), Visit(places, "b", entered)
    with pytest.raises(Overloaded):
        await late.task
    await first.leave()
    async with places.place("c"):
        pass


@pytest.mark.parametrize("seed", range(40))
async def test_no_place_is_lost_whoever_leaves_when(seed: int) -> None:
    """Requests of three tenants come, end, are cancelled and time out in any order."""
    random, entered = Random(seed), list[str]()
    most = random.randrange(1, 4)
    places = Places(most, random.randrange(5), random.choice([0.001, 60.0]))
    inside: list[Visit] = []
    came: list[asyncio.Task[None]] = []
    for _ in range(60):
        match random.randrange(4):
            case 0 | 1:
                inside.append(Visit(places, random.choice("abc"), entered))
                came.append(inside[-1].task)
            case 2 if inside:
                inside.pop(random.randrange(len(inside))).task.cancel()
            case 3 if inside:
                inside.pop(random.randrange(len(inside))).go.set()
        if random.random() < 0.7:
            await asyncio.sleep(random.choice([0, 0, 0.002]))
    for visit in inside:
        visit.go.set()
    ends = await asyncio.gather(*came, return_exceptions=True)
    assert all(isinstance(end, Overloaded | asyncio.CancelledError | None) for end in ends)
    last = [Visit(places, "z", entered) for _ in range(most)]
    await settled()
    assert entered[-most:] == ["z"] * most
    for visit in last:
        await visit.leave()
