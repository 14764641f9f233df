"""Two ingress replicas on one port: one is killed, and its streams go on at the other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import RunningCluster, running
from deployments.serve.processes import replicas
from foredraft_cli.prompts.held_out import prompts
from tests.support.cluster import free_port

NAME, STREAMS, TOKENS = "twins", 12, 300


@pytest.fixture(scope="module")
def twins(cluster: RunningCluster) -> Iterator[RunningCluster]:
    values = read(EMBEDDED_FILE).model_dump()
    [application] = values["applications"]
    application |= {"name": NAME, "route_prefix": f"/{NAME}"}
    ingress = application["args"]["ingress"]
    ingress |= {"num_replicas": 2}
    ingress["direct"]["port"] = free_port()
    with running(ServeFile.model_validate(values)) as started:
        yield started


@dataclass
class Stream:
    """A stream's tokens, how often it was cut, and the longest time without any."""

    tokens: list[int] = field(default_factory=list)
    last: str | None = None
    cuts: int = 0
    gap_s: float = 0.0
    done: bool = False


async def read_all(http: aiohttp.ClientSession, url: str, body: dict[str, Any], to: Stream) -> None:
    """Read a stream to its end; where it is cut, ask for the rest."""
    since = time.perf_counter()
    while not to.done:
        headers = {} if to.last is None else {"last-event-id": to.last}
        with suppress(aiohttp.ClientError, OSError):
            async with http.post(url, json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                async for line in answer.content:
                    if line.startswith(b"id: "):
                        last = line[4:].decode().strip()
                    elif line.startswith(b"data: {"):
                        [choice] = json.loads(line[6:])["choices"]
                        to.tokens += choice["token_ids"]
                        to.last = last
                        to.gap_s = max(to.gap_s, time.perf_counter() - since)
                        since = time.perf_counter()
                    to.done = to.done or line.startswith(b"data: [DONE]")
        if not to.done:
            to.cuts += 1
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_streams_of_a_killed_ingress_go_on_at_the_other_one(twins: RunningCluster) -> None:
    url = f"{twins.url}/v1/completions"
    bodies = [
        {
            "prompt": prompt,
            "max_tokens": TOKENS,
            "temperature": 0.8,
            "seed": at,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        for at, prompt in enumerate(prompts(STREAMS))
    ]
    # Each on a connection of its own: the kernel shares them out.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as http:

        async def plain(body: dict[str, Any]) -> list[int]:
            asked = body | {"speculative": {"enabled": False}}
            async with http.post(url, json=asked) as answer:
                found: list[int] = (await answer.json())["choices"][0]["token_ids"]
                return found

        expected = await asyncio.gather(*map(plain, bodies))
        resumable = {"stream": True, "stream_options": {"resumable": True}}
        streams = [Stream() for _ in bodies]
        async with asyncio.TaskGroup() as readers:
            for body, stream in zip(bodies, streams, strict=True):
                readers.create_task(read_all(http, url, body | resumable, stream))
            while not all(stream.tokens for stream in streams):
                await asyncio.sleep(0.01)
            first, second = replicas("ingress", NAME)
            os.kill(first, signal.SIGKILL)
    assert [stream.tokens for stream in streams] == expected
    assert all(stream.cuts <= 2 for stream in streams)
    assert any(stream.cuts for stream in streams)
    assert second in replicas("ingress", NAME)
