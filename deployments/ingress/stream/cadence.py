"""A stream token by token at an even pace, instead of block by block.

A client that sees blocks sees how long drafts were and how often they were right; a reader sees
text that jerks. Tokens that came together are spread over the time that the next ones are expected
to take: a text is late by one block at most, and its end is not held back for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace

from deployments.ingress.stream.sse import Delta

# Weight of the newest gap between two blocks, and the longest that a token is held back.
_NEWEST_WEIGHT = 0.3
_LONGEST_S = 0.25
# Tokens that wait to be sent; beyond, the stream is not read, as if its reader were slow.
_MOST_WAITING = 64

Item = tuple[int, Delta]
Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class Pace:
    """How long to wait between two tokens, learnt from the gaps between blocks. Pure."""

    def __init__(self) -> None:
        self._gap_s: float | None = None
        self._last: float | None = None

    def arrived(self, now: float) -> None:
        """Learn that a block has come."""
        if self._last is not None:
            gap = now - self._last
            known = self._gap_s
            self._gap_s = gap if known is None else known + _NEWEST_WEIGHT * (gap - known)
        self._last = now

    def wait_s(self, waiting: int) -> float:
        """Return how long to wait before the next of so many tokens."""
        if self._gap_s is None or not waiting:
            return 0.0
        return min(self._gap_s / waiting, _LONGEST_S)


def single(delta: Delta) -> Iterator[Delta]:
    """Yield a delta token by token; what came with no token of its own is in the last one."""
    pieces = [piece for one in delta.rounds for piece in one.pieces]
    if len(delta.tokens) < 2 or len(pieces) != len(delta.tokens):
        yield delta
        return
    *before, last = zip(delta.tokens, pieces, strict=True)
    first = replace(
        Delta("", prompt_logprobs=delta.prompt_logprobs), cached_tokens=delta.cached_tokens
    )
    for token, piece in before:
        yield replace(first, text=piece, tokens=(token,))
        first = Delta("")
    sent = sum(len(piece) for _, piece in before)
    rest = replace(delta, prompt_logprobs=(), cached_tokens=0)
    yield replace(rest, text=delta.text[sent:], tokens=(last[0],))


async def smoothed(
    stream: AsyncGenerator[Item], clock: Clock, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[Item]:
    """Yield the same tokens one by one; an error comes behind what came before it.

    The first block is not held back. Closing this closes the stream.
    """
    waiting: asyncio.Queue[Item | Exception | None] = asyncio.Queue(_MOST_WAITING)
    pace = Pace()

    async def pump() -> None:
        try:
            async with aclosing(stream):
                async for index, delta in stream:
                    pace.arrived(clock())
                    for one in single(delta):
                        await waiting.put((index, one))
        except Exception as error:  # noqa: BLE001 - it is raised where the tokens are taken
            await waiting.put(error)
        else:
            await waiting.put(None)

    pumping = asyncio.create_task(pump())
    due = clock()
    try:
        while (item := await waiting.get()) is not None:
            if isinstance(item, Exception):
                raise item
            await sleep(max(0.0, due - clock()))
            yield item
            due = clock() + pace.wait_s(waiting.qsize())
    finally:
        pumping.cancel()
        await asyncio.wait({pumping})
