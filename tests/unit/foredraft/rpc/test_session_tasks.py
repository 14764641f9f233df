"""The tasks of one session: the first failure counts, none is lost."""

from __future__ import annotations

import asyncio

import pytest

from foredraft.errors import InvalidRequest, Unavailable
from foredraft.rpc.session import session_tasks


async def failing(error: Exception) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise error


async def test_the_first_failure_is_raised_and_the_others_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(InvalidRequest, match="first"):
        async with session_tasks() as tasks:
            tasks.create_task(failing(ValueError("second")))
            tasks.create_task(failing(Unavailable("third")))
            await asyncio.sleep(0)
            raise InvalidRequest("first")
    traces = {record.message.partition(": ")[2]: bool(record.exc_info) for record in caplog.records}
    assert traces == {"ValueError('second')": True, "Unavailable('third')": False}


async def test_a_cancelled_session_is_cancelled() -> None:
    async def session() -> None:
        async with session_tasks() as tasks:
            tasks.create_task(asyncio.Event().wait())
            await asyncio.Event().wait()

    task = asyncio.create_task(session())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
