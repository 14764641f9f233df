"""What well-behaved clients notice of the others: python -m bench.load.bystanders.

Twenty clients stream one completion after the other, first alone, then beside each kind of bad
neighbour in turn. Printed of the twenty: the 99th percentile of the seconds between two chunks of a
stream and to its first one, and how many texts equal those that they got alone. A bystander that is
refused (429, 503) asks again; how often is printed, too. The neighbours have a key of their own;
with --one-key all have the same, and so one share of everything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from bench.load.points import percentile
from bench.load.traffic import Answer, connect, to_answer
from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.ingress.doors.keys import add_key
from deployments.serve.cluster import running
from foredraft_cli.chaos import bodies
from foredraft_cli.prompts.held_out import prompts

BYSTANDERS = 20
_TOKENS, _AGAIN_S = 64, 0.5
_ENDLESS: dict[str, Any] = {"max_tokens": 1900, "ignore_eos": True, "stream": True}


@dataclass(slots=True)
class Seen:
    """What bystanders met: their answers by number of the prompt, refusals, and other failures."""

    answers: list[tuple[int, Answer]] = field(default_factory=list)
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class Street:
    """A server's address, and what clients there may send, by the keys of good and bad ones."""

    def __init__(self, http: aiohttp.ClientSession, url: str, good: str, bad: str) -> None:
        self._http, self._url = http, f"{url}/v1/completions"
        self._good, self._bad = ({"authorization": f"Bearer {key}"} for key in (good, bad))
        self._texts = prompts(64)

    async def bystander(self, number: int, until: float, seen: Seen) -> None:
        """Stream completions of held-out prompts until a time of time.perf_counter."""
        at = number
        while time.perf_counter() < until:
            index, at = at % len(self._texts), at + BYSTANDERS
            body = {
                "prompt": self._texts[index],
                "max_tokens": _TOKENS,
                "temperature": 0.8,
                "seed": index,
                "ignore_eos": True,
                "return_token_ids": True,
                "stream": True,
            }
            sent, lines = time.perf_counter(), []
            async with self._http.post(self._url, json=body, headers=self._good) as response:
                if response.status in (429, 503):
                    seen.refused += 1
                    await asyncio.sleep(_AGAIN_S)
                    continue
                async for line in response.content:
                    lines.append((time.perf_counter(), line))
            try:
                seen.answers.append((index, to_answer(sent, lines)))
            except Exception as error:  # noqa: BLE001 - a failure is a figure here
                seen.failed[str(error)[:80]] += 1

    async def ask(self, body: Any) -> None:
        """Send anything and read what comes, whatever it is."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = self._bad | {"content-type": "application/json"}
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._http.post(self._url, data=data, headers=headers) as response:
                await response.read()

    async def repeat(self, body: Callable[[Random], Any], number: int) -> None:
        """Send one body after the other, for ever."""
        random = Random(number)
        while True:
            await self.ask(body(random))
            await asyncio.sleep(0.01)

    async def never_reads(self, number: int) -> None:
        """Open streams of eight long answers and leave them unread."""
        body = {"prompt": f"# {number}\n", "n": 8, **_ENDLESS}
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with self._http.post(self._url, json=body, headers=self._bad) as response:
                    await asyncio.sleep(20 if response.status == 200 else _AGAIN_S)


def _noise(random: Random) -> bytes:
    """Return a body that is mostly not one."""
    body = json.dumps(bodies.bomb(random))[:2000] if random.random() < 0.3 else '{"prompt": "x"}'
    data = bytearray(body.encode())
    for _ in range(random.randrange(1, 8)):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)


def neighbours(street: Street) -> dict[str, list[Callable[[], Awaitable[None]]]]:
    """Return the bad neighbours of each kind, as tasks to start."""

    def repeated(count: int, body: Callable[[Random], Any]) -> list[Callable[[], Awaitable[None]]]:
        return [lambda n=n: street.repeat(body, n) for n in range(count)]  # type: ignore[misc]

    regex, grammar = bodies.REGEX_BOMB, bodies.GRAMMAR_BOMB
    many = {"prompt": "x = 1\n", "max_tokens": _TOKENS}
    return {
        "nobody": [],
        "a regex that explodes, two clients": repeated(2, lambda _: regex),
        "an ambiguous grammar, two clients": repeated(2, lambda _: grammar),
        "prompts of 3.9 MB, two clients": repeated(2, lambda _: {"prompt": "a" * 3_900_000}),
        "six readers that do not read, eight answers each": [
            lambda n=n: street.never_reads(n)  # type: ignore[misc]
            for n in range(6)
        ],
        "four fuzzers": repeated(4, _noise),
        "ten times as many clients": repeated(
            10 * BYSTANDERS, lambda r: many | {"seed": r.randrange(9)}
        ),
    }


async def beside(
    street: Street, tasks: list[Callable[[], Awaitable[None]]], seconds: float
) -> Seen:
    """Return what bystanders see beside these neighbours."""
    bad = [asyncio.ensure_future(task()) for task in tasks]
    await asyncio.sleep(2 if bad else 0)
    seen, until = Seen(), time.perf_counter() + seconds
    try:
        await asyncio.gather(*(street.bystander(n, until, seen) for n in range(BYSTANDERS)))
    finally:
        for task in bad:
            task.cancel()
        await asyncio.gather(*bad, return_exceptions=True)
    return seen


def row(name: str, seen: Seen, alone: dict[int, tuple[int, ...]]) -> str:
    """Return a row of the table."""
    gaps = [gap for _, answer in seen.answers for gap in answer.gaps_s]
    firsts = [answer.first_token_s for _, answer in seen.answers]
    compared = [(alone[at], answer.tokens) for at, answer in seen.answers if at in alone]
    same = sum(a == b for a, b in compared)
    return (
        f"| {name} | {len(seen.answers)} | {1e3 * percentile(gaps, 99):.0f} "
        f"| {1e3 * max(gaps, default=0):.0f} | {1e3 * percentile(firsts, 99):.0f} "
        f"| {same} of {len(compared)} | {seen.refused} | {sum(seen.failed.values())} |\n"
    )


def with_keys(config: Path, folder: Path, one_key: bool) -> tuple[ServeFile, str, str]:
    """Return a configuration that asks for keys, that of good clients, and that of bad ones."""
    file = folder / "keys.yaml"
    good = add_key(file, "good")
    bad = good if one_key else add_key(file, "bad")
    values = read(config).model_dump()
    [application] = values["applications"]
    application["args"]["ingress"]["keys_file"] = file
    return ServeFile.model_validate(values), good, bad


async def run(config: Path, seconds: float, one_key: bool) -> None:
    """Print the table."""
    write = sys.stdout.write
    write("| beside | texts | gap p99, ms | longest gap | first token p99 | identical | refused ")
    write("| failed |\n|---|--:|--:|--:|--:|---|--:|--:|\n")
    with TemporaryDirectory() as folder:
        file, good, bad = with_keys(config, Path(folder), one_key)
        with running(file) as cluster:
            async with connect() as http:
                await compare(Street(http, cluster.url, good, bad), seconds)


async def compare(street: Street, seconds: float) -> None:
    """Print a row for each kind of neighbours."""
    alone: dict[int, tuple[int, ...]] = {}
    await beside(street, [], min(5.0, seconds))
    for name, tasks in neighbours(street).items():
        seen = await beside(street, tasks, seconds)
        alone = alone or {at: answer.tokens for at, answer in seen.answers}
        sys.stdout.write(row(name, seen, alone))
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    parser.add_argument("--one-key", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.config, arguments.seconds, arguments.one_key))
