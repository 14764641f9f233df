"""Clients that do nothing but ask and compare, for as long as there is something to change."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from foredraft.client import completion_body
from foredraft.types import SamplingParams

_DATA, _DONE = "data: ", "[DONE]"


@dataclass(frozen=True, slots=True)
class Question:
    """A request and the tokens that plain decoding answers it with."""

    prompt: str
    sampling: SamplingParams
    max_tokens: int
    plain: tuple[int, ...]


@dataclass(slots=True)
class Tally:
    """What came of the requests: failed by what was seen instead of an answer."""

    requests: int = 0
    identical: int = 0
    streams: int = 0
    slowest_s: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def different(self) -> int:
        """Answers that came whole and are not plain decoding's."""
        return self.requests - self.identical - sum(self.failed.values())


class Clients:
    """So many clients ask the questions in turn, every second one for a stream."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, questions: Sequence[Question]
    ) -> None:
        self._http, self._url, self._questions = http, f"{url}/v1/completions", questions
        self.tally = Tally()
        self._most = math.inf

    async def run(self, clients: int) -> None:
        """Ask until there is an end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client())

    def end_at(self, requests: int) -> None:
        """Ask no more once so many requests have begun."""
        self._most = requests

    async def _client(self) -> None:
        tally = self.tally
        while tally.requests < self._most:
            number = tally.requests
            tally.requests += 1
            question, stream = self._questions[number % len(self._questions)], number % 2 == 0
            began = time.monotonic()
            try:
                tokens = await self._answer(question, stream)
            except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
                tally.failed[f"{type(error).__name__}: {error}"[:200]] += 1
            else:
                tally.identical += tokens == question.plain
            tally.streams += stream
            tally.slowest_s = max(tally.slowest_s, time.monotonic() - began)

    async def _answer(self, question: Question, stream: bool) -> tuple[int, ...]:
        """Return the tokens of an answer; raise ValueError with what came instead of one."""
        body = completion_body(question.prompt, question.sampling, question.max_tokens, {})
        async with self._http.post(self._url, json=body | {"stream": stream}) as response:
            text = await response.text()
            if response.status != 200:
                raise ValueError(f"{response.status}: {text}")
        if not stream:
            return tuple(json.loads(text)["choices"][0]["token_ids"])
        events = [line[len(_DATA) :] for line in text.splitlines() if line.startswith(_DATA)]
        if not events or events[-1] != _DONE:
            raise ValueError(f"a stream was cut after {len(events)} events")
        tokens: list[int] = []
        for event in map(json.loads, events[:-1]):
            if "error" in event:
                raise ValueError(f"an error event: {event['error']}")
            for choice in event["choices"]:
                tokens += choice["token_ids"]
        return tuple(tokens)
