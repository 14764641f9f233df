"""Clients that ask a server again and again and hold every text to plain decoding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from foredraft.client import CompletionClient
from foredraft.types import Origin, SamplingParams
from tests.support.waiting import DEADLINE_S

_MAX_TOKENS = 150
# Rounds that the orchestrator leads, and the verifier.
_LED = (0, 16)


class Question(NamedTuple):
    """A request, and its tokens by plain decoding."""

    prompt: str
    sampling: SamplingParams
    tokens: tuple[int, ...]


class Answer(NamedTuple):
    """When a request was sent, in seconds of the loop, whether its tokens are those of plain
    decoding, and how many of them a draft had.
    """

    asked: float
    identical: bool
    kept: int


async def questions(
    client: CompletionClient, prompts: Sequence[str], temperature: float
) -> list[Question]:
    """Return requests with what plain decoding answers."""
    found = []
    for seed, prompt in enumerate(prompts):
        sampling = SamplingParams(temperature=temperature, seed=seed)
        plain = await client.complete(prompt, sampling, _MAX_TOKENS, enabled=False)
        found.append(Question(prompt, sampling, plain.tokens))
    return found


class Asking:
    """What clients were answered so far."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._answered = asyncio.Condition()

    async def comes(self, drafted: bool) -> None:
        """Return once a request that is sent from now on is answered with drafts, or without."""
        now = asyncio.get_running_loop().time()

        def holds() -> bool:
            return any(each.asked > now and (each.kept > 0) == drafted for each in self.answers)

        async with asyncio.timeout(DEADLINE_S), self._answered:
            await self._answered.wait_for(holds)

    async def ask(self, client: CompletionClient, asked: Sequence[Question], led: int) -> None:
        """Ask one question after the other, without end."""
        while True:
            for question in asked:
                now = asyncio.get_running_loop().time()
                answer = await client.complete(
                    question.prompt, question.sampling, _MAX_TOKENS, verifier_led_rounds=led
                )
                kept = answer.report["origins"].get(Origin.KEPT, 0)
                async with self._answered:
                    self.answers.append(Answer(now, answer.tokens == question.tokens, kept))
                    self._answered.notify_all()


@asynccontextmanager
async def asking(client: CompletionClient, asked: Sequence[Question]) -> AsyncIterator[Asking]:
    """Ask from two clients, whose rounds are led by the orchestrator and by the verifier."""
    seen = Asking()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(seen.ask(client, asked, led)) for led in _LED]
        yield seen
        for task in tasks:
            task.cancel()
