"""Clients that send half a request, or take no answer."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Message

from deployments.ingress.direct.patience import Patience

SCOPE = {"type": "http"}


class App:
    """Reads a body and answers in two parts; notes how it ended."""

    def __init__(self) -> None:
        self.read: list[Message] = []
        self.ended = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            self.read.append(await receive())
            while self.read[-1].get("more_body"):
                self.read.append(await receive())
            await send({"type": "http.response.start"})
            await send({"type": "http.response.body"})
            self.ended = "well"
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise


async def test_who_takes_nothing_is_given_up() -> None:
    app = App()
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x"}

    async def send(message: Message) -> None:
        if sent:
            await asyncio.Event().wait()
        sent.append(message)

    await Patience(app, unread_s=0.01)(SCOPE, receive, send)
    assert app.ended == "cancelled" and len(sent) == 1


async def test_who_sends_half_a_body_is_as_one_who_left() -> None:
    app = App()
    parts = iter([{"type": "http.request", "body": b"x", "more_body": True}])

    async def receive() -> Message:
        for part in parts:
            return part
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        pass

    await Patience(app, unread_s=1, body_s=0.01)(SCOPE, receive, send)
    assert app.read[-1] == {"type": "http.disconnect"}


async def test_what_is_cancelled_from_outside_stays_so() -> None:
    app = App()

    async def wait() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        pass

    task = asyncio.create_task(Patience(app, unread_s=1)(SCOPE, wait, send))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
