"""The loop in virtual time, and an engine in it."""

from __future__ import annotations

import asyncio
import time

import pytest

from foredraft.errors import ForedraftError
from foredraft_simulator.virtual.loop import run_virtual


def test_sleep_takes_no_time_and_moves_the_clock() -> None:
    async def main() -> list[tuple[float, str]]:
        loop, seen = asyncio.get_running_loop(), []

        async def after(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            seen.append((loop.time(), name))

        await asyncio.gather(after(7200.0, "late"), after(0.5, "early"))
        return seen

    began = time.monotonic()
    assert run_virtual(main()) == [(0.5, "early"), (7200.0, "late")]
    assert time.monotonic() - began < 60


def test_timeouts_are_virtual() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.get_running_loop().create_future()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 3600.0


def test_a_simulation_that_stands_still_ends_with_an_error() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(ForedraftError, match="stands still"):
        run_virtual(main())


def test_what_is_left_running_is_cancelled() -> None:
    ended = []

    async def endless() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(True)

    async def main() -> None:
        task = asyncio.create_task(endless())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtual(main())
    assert ended == [True]
