"""New sessions that wait for room: their order, what wakes them, and how long they wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import Overloaded, Unavailable
from orchestrator.waiting_line import WaitingLine


class Room:
    """So many places, and who was given one, in order."""

    def __init__(self, places: int) -> None:
        self.places, self.admitted, self.attempts = places, list[str](), 0

    async def open(self, name: str) -> None:
        """Take a place; raise Overloaded where there is none."""
        self.attempts += 1
        await asyncio.sleep(0)
        if not self.places:
            raise Overloaded(f"no room for {name}")
        self.places -= 1
        self.admitted.append(name)


def entered(
    line: WaitingLine, room: Room, name: str, tenant: str = "", wait_s: float = 5.0
) -> asyncio.Task[None]:
    """Return the task of a session that is to be admitted."""
    return asyncio.create_task(line.admit(lambda: room.open(name), tenant, wait_s))


async def in_line(line: WaitingLine, room: Room, *names: str) -> list[asyncio.Task[None]]:
    """Return the tasks of sessions that came one after the other."""
    tasks = []
    for name in names:
        tasks.append(entered(line, room, name))
        await asyncio.sleep(0.001)
    return tasks


async def test_where_there_is_room_nobody_waits() -> None:
    line, room = WaitingLine(), Room(2)
    await asyncio.gather(entered(line, room, "a"), entered(line, room, "b"))
    assert (room.attempts, line.waiting) == (2, 0)


async def test_first_come_first_served() -> None:
    line, room = WaitingLine(), Room(0)
    tasks = await in_line(line, room, "a", "b", "c")
    assert line.waiting == 3
    room.places = 2
    # It came before them, and has to wait all the same.
    late = entered(line, room, "d")
    await asyncio.gather(*tasks[:2])
    assert room.admitted == ["a", "b"]
    room.places = 2
    await asyncio.gather(tasks[2], late)
    assert room.admitted == ["a", "b", "c", "d"]
    assert line.waiting == 0


async def test_an_end_wakes_the_first_at_once_and_only_the_first_asks() -> None:
    line, room = WaitingLine(), Room(0)
    tasks = await in_line(line, room, "a", "b", "c", "d")
    await asyncio.sleep(0.3)
    # Each asked when it came, or did not; then a pause of up to 0.1 s lies between two attempts.
    assert room.attempts < 12
    room.places, before = 1, room.attempts
    line.ended()
    await asyncio.wait_for(tasks[0], 0.05)
    assert room.admitted == ["a"] and room.attempts <= before + 2
    room.places = 3
    await asyncio.gather(*tasks)


async def test_tenants_have_lines_of_their_own() -> None:
    line, room = WaitingLine(), Room(0)
    waits = entered(line, room, "a", "one")
    await asyncio.sleep(0.01)

    async def open_() -> None:
        room.admitted.append("b")

    await line.admit(open_, "two", 0.0)
    assert room.admitted == ["b"] and line.waiting == 1
    room.places = 1
    await waits


async def test_who_waits_too_long_is_refused_with_the_replicas_reason() -> None:
    line, room = WaitingLine(), Room(0)
    tasks = [entered(line, room, name, wait_s=0.03) for name in ("a", "b")]
    refused = await asyncio.gather(*tasks, return_exceptions=True)
    assert str(refused[0]) == "no room for a"
    assert all(isinstance(each, Overloaded) for each in refused)
    assert line.waiting == 0


async def test_who_may_not_wait_overtakes_nobody() -> None:
    line, room = WaitingLine(), Room(0)
    with pytest.raises(Overloaded, match="no room for a"):
        await entered(line, room, "a", wait_s=0.0)
    waits = entered(line, room, "b")
    await asyncio.sleep(0.001)
    room.places = 1
    with pytest.raises(Overloaded, match="came before"):
        await line.admit(lambda: room.open("c"), "", 0.0)
    await waits
    assert room.admitted == ["b"]


async def test_another_error_and_a_cancel_let_the_next_one_on() -> None:
    line, room = WaitingLine(), Room(0)
    first, second, third = await in_line(line, room, "a", "b", "c")
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first

    async def gone(name: str) -> None:
        raise Unavailable(name)

    room.open, kept = gone, room.open
    with pytest.raises(Unavailable):
        await second
    room.open, room.places = kept, 1
    await asyncio.wait({third}, timeout=1)
    assert third.done() and line.waiting == 0


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
def test_each_tenants_sessions_are_admitted_in_their_order(
    tenants: list[str], given_back: list[int]
) -> None:
    async def run() -> None:
        line, room = WaitingLine(), Room(1)
        tasks = []
        for number, tenant in enumerate(tenants):
            tasks.append(entered(line, room, f"{tenant}{number:02}", tenant))
            await asyncio.sleep(0)
        for places in given_back:
            room.places += places
            line.ended()
            for _ in range(4):
                await asyncio.sleep(0)
        room.places = len(tenants)
        await asyncio.gather(*tasks)
        for tenant in "abc":
            own = [name for name in room.admitted if name.startswith(tenant)]
            assert own == sorted(own)
        assert len(room.admitted) == len(tenants) and line.waiting == 0

    asyncio.run(run())
