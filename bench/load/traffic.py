"""Many clients at once: each streams one completion after the other until all prompts are done."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.compare.workload import Mode
from foredraft.client import Prompt, completion_body
from foredraft.errors import Unavailable
from foredraft.types import SamplingParams

_TIMEOUT = aiohttp.ClientTimeout(total=600)
_DATA, _DONE = b"data: ", b"data: [DONE]"


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed completion: its tokens, when it was sent, and when each chunk with tokens came.

    Times are seconds of one clock.
    """

    tokens: tuple[int, ...]
    sent: float
    chunks: tuple[float, ...]

    @property
    def first_token_s(self) -> float:
        """Seconds to the first token."""
        return self.chunks[0] - self.sent

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between chunks."""
        return [b - a for a, b in zip(self.chunks, self.chunks[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Turn:
    """All answers in the order of their prompts, and the seconds from first to last."""

    answers: tuple[Answer, ...]
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second of all clients together."""
        return sum(len(answer.tokens) for answer in self.answers) / self.seconds


@dataclass(frozen=True, slots=True)
class Traffic:
    """What every turn sends by so many clients at once: prompts, each with its sampling and length.

    Each client begins stagger_s after the one before. model is one of the server's, "" the first.
    """

    prompts: Sequence[Prompt]
    samplings: Sequence[SamplingParams]
    clients: int
    max_tokens: Sequence[int]
    stagger_s: float = 0.0
    model: str = ""

    async def turn(self, http: aiohttp.ClientSession, url: str, mode: Mode) -> Turn:
        """Decode all prompts in one way; raise Unavailable for an answer that is none."""

        async def answer(index: int, prompt: Prompt) -> Answer:
            asked = self.samplings[index], self.max_tokens[index]
            body = completion_body(prompt, *asked, mode.options)
            named = {"model": self.model} if self.model else {}
            return await _streamed(http, url, body | named | {"stream": True})

        return await self.play(answer)

    async def play(self, answer: Callable[[int, Prompt], Awaitable[Answer]]) -> Turn:
        """Let the clients take the prompts in order, and answer each."""
        waiting = list(enumerate(self.prompts))[::-1]
        answers: dict[int, Answer] = {}

        async def client(number: int) -> None:
            await asyncio.sleep(number * self.stagger_s)
            while waiting:
                index, prompt = waiting.pop()
                answers[index] = await answer(index, prompt)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as clients:
            for number in range(self.clients):
                clients.create_task(client(number))
        seconds = time.perf_counter() - began
        return Turn(tuple(answers[index] for index in range(len(self.prompts))), seconds)


def connect() -> aiohttp.ClientSession:
    """Return an HTTP session for any number of clients."""
    return aiohttp.ClientSession(timeout=_TIMEOUT, connector=aiohttp.TCPConnector(limit=0))


async def _streamed(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Answer:
    sent = time.perf_counter()
    lines: list[tuple[float, bytes]] = []
    async with http.post(f"{url}/v1/completions", json=body) as response:
        async for line in response.content:
            lines.append((time.perf_counter(), line))
    return to_answer(sent, lines)


def to_answer(sent: float, lines: Sequence[tuple[float, bytes]]) -> Answer:
    """Return the answer of a stream's lines, each with its time.

    Read once the stream has ended: meanwhile the client leaves the CPU to the server.
    """
    tokens: list[int] = []
    chunks: list[float] = []
    for at, line in lines:
        if not line.startswith(_DATA) or line.startswith(_DONE):
            continue
        chunk = json.loads(line[len(_DATA) :])
        if "error" in chunk:
            raise Unavailable(f"a request failed: {chunk['error']}")
        for choice in chunk["choices"]:
            if choice["token_ids"]:
                tokens += choice["token_ids"]
                chunks.append(at)
    if not chunks:
        raise Unavailable(f"a request had no tokens: {lines[:1]}")
    return Answer(tuple(tokens), sent, tuple(chunks))
