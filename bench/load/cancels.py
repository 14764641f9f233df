"""What cancelled requests leave behind: python -m bench.load.cancels.

Requests of all kinds, over HTTP and gRPC in turn, are cancelled at random moments, some at once.
Printed: how long after each lot the gauges of ingress, verifier and drafter are zero again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import grpc

from bench.load.traffic import connect
from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import running
from foredraft.v1 import common_pb2, generation_pb2, generation_pb2_grpc
from foredraft_cli.chaos import bodies
from foredraft_cli.chaos.held import held
from foredraft_cli.prompts.held_out import prompts

_GRPC_PORT = 8001
_AT_ONCE = 8
# A cancel comes within so many seconds: before the prompt is read, up to the last rounds.
_WITHIN_S = 0.6
_PATIENCE_S, _LOOK_S = 30.0, 0.02
_TOKENS = 400
Ask = Callable[[str, Random], Coroutine[Any, Any, None]]


def with_grpc(config: Path) -> ServeFile:
    """Return a configuration whose ingress listens for gRPC, too."""
    values = read(config).model_dump()
    [application] = values["applications"]
    application["args"]["ingress"]["grpc"] = {"port": _GRPC_PORT}
    return ServeFile.model_validate(values)


class Clients:
    """One request of a random kind, by HTTP or by gRPC, read to its end."""

    def __init__(self, http: aiohttp.ClientSession, url: str, channel: grpc.aio.Channel) -> None:
        self._http, self._url = http, f"{url}/v1/completions"
        self._stub = generation_pb2_grpc.GenerationServiceStub(channel)

    async def over_http(self, prompt: str, random: Random) -> None:
        """Read an answer, or several, with a grammar or without, streamed or whole."""
        [body] = bodies.good([prompt])
        body |= random.choice(
            [
                {"n": 3, "temperature": 0.9},
                {"structured_outputs": {"regex": "[a-z ]{60,200}"}},
                {"temperature": 0.8},
                {},
            ]
        )
        body |= {"max_tokens": _TOKENS, "stream": random.random() < 0.7}
        body["ignore_eos"] = "structured_outputs" not in body
        async with self._http.post(self._url, json=body) as response:
            response.raise_for_status()
            await response.read()

    async def over_grpc(self, prompt: str, random: Random) -> None:
        """Read an answer, with a grammar or without, streamed or whole."""
        grammar = generation_pb2.OutputGrammar(kind="regex", text="[a-z ]{60,200}")
        request = generation_pb2.GenerateRequest(
            input=generation_pb2.Input(text=prompt),
            sampling=common_pb2.SamplingParams(temperature=random.choice((0.0, 0.8)), seed=1),
            max_tokens=_TOKENS,
        )
        if random.random() < 0.5:
            request.grammar.CopyFrom(grammar)
        else:
            request.ignore_eos = True
        if random.random() < 0.3:
            await self._stub.Generate(request)
            return
        async for _ in self._stub.GenerateStream(request):
            pass


async def cancelled(ask: Ask, prompt: str, random: Random) -> bool:
    """Cancel a request at a random moment; return whether it was under way."""
    task = asyncio.create_task(ask(prompt, random))
    await asyncio.wait({task}, timeout=random.uniform(0, _WITHIN_S))
    under_way = task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return under_way


async def seconds_held(application: str) -> float:
    """Return after how many seconds no gauge is above zero; raise TimeoutError if one stays."""
    began = time.perf_counter()
    while (found := await asyncio.to_thread(held, application)) != {}:
        if time.perf_counter() - began > _PATIENCE_S:
            raise TimeoutError(f"still held: {found}")
        await asyncio.sleep(_LOOK_S)
    return time.perf_counter() - began


async def lots(clients: Clients, application: str, count: int, seed: int) -> Sequence[float]:
    """Cancel so many requests, some at once; return how long each lot was held."""
    random, texts = Random(seed), prompts(64)
    ways: Sequence[Ask] = (clients.over_http, clients.over_grpc)
    found, under_way = [], 0
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(count, first + _AT_ONCE))
        each = [
            cancelled(ways[n % 2], texts[n % len(texts)], Random(random.random())) for n in numbers
        ]
        under_way += sum(await asyncio.gather(*each))
        found.append(await seconds_held(application))
    sys.stdout.write(f"{under_way} of {count} were under way\n")
    return found


async def run(config: Path, count: int, seed: int) -> None:
    """Print how long gauges stay above zero behind cancels, and behind nothing."""
    file = with_grpc(config)
    application = file.application.name
    with running(file) as cluster:
        async with (
            connect() as http,
            grpc.aio.insecure_channel(f"127.0.0.1:{_GRPC_PORT}") as channel,
        ):
            clients = Clients(http, cluster.url, channel)
            await clients.over_grpc("x", Random(0))
            nothing = await seconds_held(application)
            found = sorted(await lots(clients, application, count, seed))
    sys.stdout.write(
        f"gauges at zero after {found[len(found) // 2]:.2f} s in the median, {found[-1]:.2f} s at "
        f"most; to read them takes {nothing:.2f} s\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.config, arguments.count, arguments.seed))
