"""A streamed completion that others follow while it is read."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp

from bench.load.traffic import Answer, to_answer
from foredraft.errors import Unavailable

_DATA, _DONE = b"data: {", b"data: [DONE]"


class Stream:
    """One completion, read once."""

    def __init__(self, http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
        self._http, self._url, self._body = http, f"{url}/v1/completions", body | {"stream": True}
        self._changed = asyncio.Condition()
        self._tokens = 0
        self._ended = False

    async def read(self) -> Answer:
        """Return the answer; raise Unavailable where it is an error or is cut."""
        lines: list[tuple[float, bytes]] = []
        sent = time.perf_counter()
        try:
            async with self._http.post(self._url, json=self._body) as response:
                if response.status != 200:
                    raise Unavailable(await response.text())
                async for line in response.content:
                    lines.append((time.perf_counter(), line))
                    if line.startswith(_DATA):
                        await self._add(json.loads(line.partition(b" ")[2]))
        finally:
            async with self._changed:
                self._ended = True
                self._changed.notify_all()
        if not any(line.startswith(_DONE) for _, line in lines):
            raise Unavailable("the stream was cut")
        return to_answer(sent, lines)

    async def until(self, tokens: int) -> None:
        """Return once so many tokens came, or the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or self._tokens >= tokens)

    async def _add(self, event: dict[str, Any]) -> None:
        async with self._changed:
            self._tokens += sum(len(choice["token_ids"]) for choice in event.get("choices", ()))
            self._changed.notify_all()
