"""`foredraft bench rolling`: changes go live under load, and nobody may notice."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.load.traffic import connect
from bench.rolling.load import Clients, Question, Tally
from bench.rolling.replaced import replaced
from bench.rolling.updates import CHANGES, Change, Update, updates
from deployments.config import ServeFile
from deployments.serve.cluster import deployed, running
from deployments.serve.deploying import deploy, deployed_changes, wait_until_deployed
from deployments.serve.processes import replicas
from foredraft.client import CompletionClient
from foredraft_cli.prompts.held_out import TEMPERATURES, prompts, sampling

_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class RollingPlan:
    """The load and the changes; at least so many requests, and rest_s of them after a change."""

    requests: int = 2000
    clients: int = 8
    texts: int = 8
    max_tokens: int = 24
    rest_s: float = 3.0
    changes: tuple[Change, ...] = field(default=CHANGES)


class Done(NamedTuple):
    """A change that went live: in how many seconds, and what it did to each deployment."""

    name: str
    seconds: float
    deployments: dict[str, str]
    requests: int
    failed: int


@dataclass(frozen=True, slots=True)
class Rolled:
    """All changes, and what came of all requests."""

    changes: list[Done]
    tally: Tally


async def measure(file: ServeFile, plan: RollingPlan, say: Callable[[str], None]) -> Rolled:
    """Start a file's application and roll a plan's changes; raise Unavailable where one fails."""
    with running(file, start=deployed) as cluster:
        return await roll(cluster.url, file, plan, say)


async def roll(url: str, file: ServeFile, plan: RollingPlan, say: Callable[[str], None]) -> Rolled:
    """Deploy each change of a file that runs already, under load."""
    with tempfile.TemporaryDirectory() as folder:
        async with loaded(url, plan) as clients:
            done = []
            await asyncio.sleep(plan.rest_s)
            for update in updates(file, Path(folder), plan.changes):
                done.append(await _done(update, clients.tally, plan.rest_s))
                say(summary(done[-1]))
    return Rolled(done, clients.tally)


@asynccontextmanager
async def loaded(url: str, plan: RollingPlan) -> AsyncIterator[Clients]:
    """Have clients ask while this is entered, and until they have asked enough."""
    async with connect() as http:
        clients = Clients(http, url, await _questions(url, plan))
        asking = asyncio.create_task(clients.run(plan.clients))
        yield clients
        clients.end_at(plan.requests)
        await asking


async def _done(update: Update, tally: Tally, rest_s: float) -> Done:
    """Make a change; the requests of a while after it count as its own."""
    began, asked, failed = time.monotonic(), tally.requests, sum(tally.failed.values())
    changes = await (_deployed(update.file) if update.ends is None else _ended(update))
    seconds = time.monotonic() - began
    # Those that were replaced drain behind the new ones.
    await asyncio.sleep(rest_s)
    requests, failures = tally.requests - asked, sum(tally.failed.values()) - failed
    return Done(update.name, round(seconds, 1), changes, requests, failures)


async def _deployed(file: ServeFile) -> dict[str, str]:
    """Deploy a file; return what it did to each deployment."""
    found = await asyncio.to_thread(deployed_changes, file)
    await asyncio.to_thread(deploy, file)
    await asyncio.to_thread(wait_until_deployed, file.application.name, _TIMEOUT_S)
    return {pool: str(change) for pool, change in found.items() if change != "unchanged"}


async def _ended(update: Update) -> dict[str, str]:
    """Ask one replica to end and wait for the next; raise TimeoutError without one."""
    assert update.ends is not None
    application = update.file.application.name
    before = replicas(update.ends, application)
    os.kill(before[0], signal.SIGTERM)
    await replaced(update.ends, application, before[0], len(before), _TIMEOUT_S)
    return {update.ends: "one ended, one began"}


async def _questions(url: str, plan: RollingPlan) -> list[Question]:
    """Return the questions with plain decoding's answers."""
    found = []
    async with CompletionClient(url) as client:
        for index, prompt in enumerate(prompts(plan.texts)):
            params = sampling(TEMPERATURES[index % len(TEMPERATURES)], index)
            plain = await client.complete(prompt, params, plan.max_tokens, enabled=False)
            found.append(Question(prompt, params, plan.max_tokens, plain.tokens))
    return found


def summary(done: Done) -> str:
    """Return a change in one line, for those who wait for the others."""
    return f"{done.name}: {done.seconds:.1f} s, {done.requests} requests, {done.failed} failed"


def as_json(rolled: Rolled) -> dict[str, Any]:
    """Return all of it as plain values."""
    return {
        "changes": [done._asdict() for done in rolled.changes],
        **asdict(rolled.tally),
        # A Counter of its own would have pairs for keys.
        "failed": dict(rolled.tally.failed),
        "different": rolled.tally.different,
    }


def as_markdown(rolled: Rolled) -> str:
    """Return the changes as a table, and the sums below it."""
    rows = [
        f"| {done.name} | {', '.join(f'{k}: {v}' for k, v in done.deployments.items())} "
        f"| {done.seconds:.1f} | {done.requests} | {done.failed} |"
        for done in rolled.changes
    ]
    head = ["| change | deployments | s | requests | failed |", "|---|---|--:|--:|--:|"]
    tally = rolled.tally
    failed = sum(tally.failed.values())
    sums = (
        f"{tally.requests} requests ({tally.streams} streams): {failed} failed, "
        f"{tally.different} different from plain decoding; the slowest took {tally.slowest_s:.2f} s"
    )
    return "\n".join([*head, *rows]) + f"\n\n{sums}\n"
