"""Clients of all kinds, which hold what they get to plain decoding."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp

from foredraft_cli.chaos import bodies
from foredraft_cli.chaos.tally import Tally

_TIMEOUT = aiohttp.ClientTimeout(total=180)
_AGAIN_S = 0.5
# What a bomb asks for may be allowed and take minutes: its client leaves before.
_BOMB_S = 30.0
# What a client may do: read a whole answer, a stream, a stream that it resumes where it is cut, one
# that it leaves, one that it reads slowly; or ask for too much.
_WAYS = ("whole", "stream", "resumed", "cancelled", "slow", "bomb")
_WEIGHTS = (4, 4, 6, 3, 1, 1)
# What a server that is lost, or has no room, may answer a good request.
_COME_BACK = frozenset({429, 503})

Felt = Callable[[float, float], set[str]]


class Refused(Exception):
    """A request was answered with an error."""

    def __init__(self, code: int, more: str = "") -> None:
        super().__init__(f"{code} {more}".strip())
        self.code = code


@dataclass(slots=True)
class _Reading:
    """The tokens of a stream's answers so far, and the id of its last event."""

    tokens: list[list[int]]
    last: str | None = None


class Load:
    """Clients of one server."""

    def __init__(self, url: str, known: Sequence[dict[str, Any]], felt: Felt, tally: Tally) -> None:
        self._url, self._felt, self._tally = f"{url}/v1/completions", felt, tally
        self._known = known
        self._plain: list[list[list[int]]] = []

    async def learn(self) -> None:
        """Take plain decoding's answers, on a cluster that nothing is done to."""
        self._plain = await self._answers()

    async def repeat(self) -> None:
        """Ask again what learn asked."""
        found = await self._answers()
        for body, tokens, plain in zip(self._known, found, self._plain, strict=True):
            self._tally.answered(body, tokens, plain)

    async def _answers(self) -> list[list[list[int]]]:
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as http:
            return [await self._whole(http, bodies.plain(body)) for body in self._known]

    async def run(self, until: float, random: Random) -> None:
        """Be one client after the other until a time of time.monotonic."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as http:
            while time.monotonic() < until:
                began = time.monotonic()
                [way] = random.choices(_WAYS, _WEIGHTS)
                try:
                    async with asyncio.timeout(_TIMEOUT.total):
                        await self._one(http, way, random)
                except aiohttp.ClientConnectorError:
                    await self._failed(f"{way}: no server", began)
                except (aiohttp.ClientError, ConnectionError) as error:
                    await self._failed(f"{way}: cut, {type(error).__name__}", began)
                except Refused as error:
                    await self._failed(f"{way}: {error}", began)
                except TimeoutError:
                    await self._failed(f"{way}: no end", began)

    async def _failed(self, what: str, began: float) -> None:
        self._tally.failed(what, self._felt(began, time.monotonic()))
        await asyncio.sleep(_AGAIN_S)

    async def _one(self, http: aiohttp.ClientSession, way: str, random: Random) -> None:
        if way == "bomb":
            await self._bomb(http, bodies.bomb(random))
            return
        at = random.randrange(len(self._known))
        body, plain = self._known[at], self._plain[at]
        if way == "whole":
            self._tally.answered(body, await self._whole(http, body), plain)
        elif way == "cancelled":
            await self._leave(http, body, random.uniform(0, 1.5))
        else:
            pause_s = 0.3 if way == "slow" else 0.0
            found = await self._stream(http, body, way == "resumed", pause_s)
            self._tally.answered(body, found, plain)

    async def _whole(self, http: aiohttp.ClientSession, body: dict[str, Any]) -> list[list[int]]:
        async with http.post(self._url, json=body) as answer:
            found = await self._checked(answer)
        return [choice["token_ids"] for choice in found["choices"]]

    async def _stream(
        self, http: aiohttp.ClientSession, body: dict[str, Any], resumable: bool, pause_s: float
    ) -> list[list[int]]:
        """Return a stream's tokens; a resumable one goes on as often as it is cut."""
        reading = _Reading([[] for _ in range(body.get("n", 1))])
        asked = body | {"stream": True, "stream_options": {"resumable": resumable}}
        while True:
            headers = {} if reading.last is None else {"last-event-id": reading.last}
            try:
                async with http.post(self._url, json=asked, headers=headers) as answer:
                    if answer.status != 200:
                        await self._checked(answer)
                    await self._read(answer, reading, pause_s)
                return reading.tokens
            except (aiohttp.ClientError, OSError, Refused) as error:
                lost = not isinstance(error, Refused) or error.code in _COME_BACK
                if not (resumable and lost):
                    raise
                self._tally.resumed += 1
                await asyncio.sleep(_AGAIN_S)

    async def _read(
        self, answer: aiohttp.ClientResponse, reading: _Reading, pause_s: float
    ) -> None:
        """Add a stream's tokens to what was read before."""
        id_, done, since = reading.last, False, time.monotonic()
        async for line in answer.content:
            if line.startswith(b"id: "):
                id_ = line[4:].decode().strip()
            elif line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    raise Refused(event["error"]["code"], "in the stream")
                for choice in event["choices"]:
                    reading.tokens[choice["index"]] += choice["token_ids"]
                reading.last = id_
                self._tally.silent(time.monotonic() - since)
                await asyncio.sleep(pause_s)
                since = time.monotonic()
            done = done or line.startswith(b"data: [DONE]")
        if not done:
            raise aiohttp.ClientPayloadError("the stream has no [DONE]")

    async def _leave(
        self, http: aiohttp.ClientSession, body: dict[str, Any], after_s: float
    ) -> None:
        """Begin a request and leave it at some moment."""
        self._tally.cancelled += 1
        reading = asyncio.create_task(self._stream(http, body, False, 0.0))
        await asyncio.wait({reading}, timeout=after_s)
        reading.cancel()
        await asyncio.wait({reading})

    async def _bomb(self, http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
        """Ask for too much: any answer but a server's error will do, or none for a while."""
        self._tally.bombs += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(_BOMB_S), http.post(self._url, json=body) as answer:
                text = await answer.text()
                if answer.status >= 500 and answer.status not in _COME_BACK:
                    raise Refused(answer.status, f"for a bomb: {text[:80]}")

    async def _checked(self, answer: aiohttp.ClientResponse) -> dict[str, Any]:
        """Return a whole answer; raise Refused with the status of an error."""
        try:
            body: dict[str, Any] = await answer.json()
        except (aiohttp.ContentTypeError, ValueError):
            raise Refused(answer.status, "without a JSON body") from None
        if answer.status != 200:
            late = answer.status in _COME_BACK and "retry-after" not in answer.headers
            raise Refused(answer.status, "without retry-after" if late else "")
        return body
