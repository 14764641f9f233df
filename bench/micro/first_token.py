"""Where a first token's time goes: bench.micro.first_token.

One local cluster, idle but for one request at a time. Of each request's first token: what the
client saw, the target's pass over the prompt (its own report), and what lies between: Serve's proxy
or the ingress's own port, the ingress, the orchestrator and the wire. Prompts differ, so that
nothing is cached.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import aiohttp

from bench.overhead.direct import reached_both_ways
from deployments.config import read
from deployments.serve.cluster import running
from foredraft_cli.options import served
from foredraft_cli.prompts.held_out import prompts


class First(NamedTuple):
    """The parts of one first token, in seconds.

    The target's own work is the prompt's passes, which the verifier reports as the first round's
    queue, and the first token's pass.
    """

    seen_s: float
    prefill_s: float
    draft_wait_s: float
    orchestrated_s: float

    @property
    def added_s(self) -> float:
        """What everything but the target's own work took."""
        return self.seen_s - self.prefill_s

    @property
    def opening_s(self) -> float:
        """The orchestrator's part: choosing and opening replicas, and the round's messages."""
        return self.orchestrated_s - self.prefill_s - self.draft_wait_s

    @property
    def http_s(self) -> float:
        """Serve's proxy, the ingress and the client."""
        return self.seen_s - self.orchestrated_s


async def first(http: aiohttp.ClientSession, url: str, prompt: str, enabled: bool) -> First:
    """Return the parts of a request's first token."""
    body: dict[str, Any] = {
        "prompt": prompt,
        "max_tokens": 24,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "cache_salt": uuid.uuid4().hex,
        "speculative": {"enabled": enabled, "rounds": True},
    }
    began, found = time.perf_counter(), None
    async with http.post(f"{url}/v1/completions", json=body) as response:
        async for line in response.content:
            if found is None and line.startswith(b"data: {"):
                seen_s = time.perf_counter() - began
                one = json.loads(line[6:])["choices"][0]["rounds"][0]
                ended_s = one["began_s"] + one["draft_wait_s"] + one["verify_s"]
                prefill_s = one["verifier_s"] + one["verifier_queue_s"]
                found = First(seen_s, prefill_s, one["draft_wait_s"], ended_s)
    assert found is not None
    return found


async def run(config: Path | None, count: int) -> None:
    """Print medians over the prompts, by each way in, decoded plainly and with drafts in turn."""
    file, texts = reached_both_ways(read(served(config))), prompts(count)
    found: dict[tuple[str, bool], list[First]] = defaultdict(list)
    with running(file) as cluster:
        ways = {"Serve's proxy": cluster.url, "its own port": cluster.direct_url}
        async with aiohttp.ClientSession() as http:
            for text in texts[:4]:
                for url in ways.values():
                    await first(http, url, text, True)
            for text in texts:
                for way, url in ways.items():
                    for enabled in (False, True):
                        found[way, enabled].append(await first(http, url, text, enabled))
    sys.stdout.write("| | seen | prefill | added | drafter | orchestrator | HTTP |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for (way, enabled), firsts in found.items():
        parts = [
            (one.seen_s, one.prefill_s, one.added_s, one.draft_wait_s, one.opening_s, one.http_s)
            for one in firsts
        ]
        columns = (median(column) for column in zip(*parts, strict=True))
        cells = " | ".join(f"{1e3 * column:.1f} ms" for column in columns)
        name = "with drafts" if enabled else "plain"
        sys.stdout.write(f"| {way}, {name} | {cells} |\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path)
    parser.add_argument("--prompts", type=int, default=40)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.config, arguments.prompts))
