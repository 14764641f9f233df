"""What a reader gets of a channel, and when."""

from __future__ import annotations

import asyncio

import pytest

from foredraft.errors import DeadlineExceeded
from orchestrator.drive.channel import BoundedChannel
from tests.support.waiting import eventually, turns


@pytest.mark.parametrize("interval_s", [0.01, 60.0])
async def test_a_reader_is_woken_once_in_an_interval(interval_s: float) -> None:
    channel: BoundedChannel[int] = BoundedChannel(4, interval_s)
    reads: list[list[int]] = []

    async def read() -> None:
        async for item in channel:
            reads.append([item])
            while channel.waiting:
                reads[-1].append(await anext(channel))

    reader = asyncio.create_task(read())
    await turns()
    await channel.put(0)
    await eventually(lambda: reads == [[0]])
    await channel.put(1)
    await channel.put(2)
    if interval_s < 1:
        await eventually(lambda: reads == [[0], [1, 2]])
    else:
        await turns()
        assert reads == [[0]]
    channel.end()
    await reader
    assert reads == [[0], [1, 2]]


async def test_a_full_channel_wakes_its_reader_at_once() -> None:
    channel: BoundedChannel[int] = BoundedChannel(2, interval_s=60)
    reads: list[int] = []

    async def read() -> None:
        async for item in channel:
            reads.append(item)

    reader = asyncio.create_task(read())
    await turns()
    for item in range(2):
        await channel.put(item)
        await turns()
    assert reads == [0]
    await channel.put(2)
    await turns()
    assert reads == [0, 1, 2]
    await channel.put(3)
    channel.end()
    await reader
    assert reads == [0, 1, 2, 3]


async def test_a_reader_who_takes_nothing_is_given_up() -> None:
    channel: BoundedChannel[int] = BoundedChannel(1, patience_s=0.01)
    await channel.put(0)
    with pytest.raises(DeadlineExceeded, match="nothing was read"):
        await channel.put(1)
