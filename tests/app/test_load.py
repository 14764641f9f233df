"""Many requests at once, and many in a row."""

from __future__ import annotations

import asyncio
from pathlib import Path

from foredraft.client import CompletionClient
from foredraft_cli.prompts.held_out import prompts, sampling
from tests.support.cluster import replica_pids

TOKENS = 48


async def test_sixteen_streams_each_equal_to_their_own_plain_run(client: CompletionClient) -> None:
    async def stream(index: int, prompt: str) -> tuple[int, ...]:
        tokens: list[int] = []
        async for _, block in client.stream(prompt, sampling(0.8, index), TOKENS):
            tokens += [committed.token for committed in block]
        return tuple(tokens)

    texts = prompts(16)
    together = await asyncio.gather(*(stream(i, text) for i, text in enumerate(texts)))
    for index, (text, tokens) in enumerate(zip(texts, together, strict=True)):
        plain = await client.complete(text, sampling(0.8, index), TOKENS, enabled=False)
        assert tokens == plain.tokens


def resident_mib(deployment: str) -> float:
    [pid] = replica_pids(deployment)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


async def test_memory_is_flat_over_300_requests(client: CompletionClient) -> None:
    texts = prompts(25)
    deployments = ("ingress", "drafter", "verifier")

    async def requests(count: int) -> None:
        gate = asyncio.Semaphore(8)

        async def one(index: int) -> None:
            async with gate:
                await client.complete(texts[index % 25], sampling(0.8, index), 8)

        await asyncio.gather(*(one(i) for i in range(count)))

    await requests(100)  # allocators and caches reach their size
    before = {name: resident_mib(name) for name in deployments}
    await requests(200)
    growth = {name: resident_mib(name) - before[name] for name in deployments}
    assert all(mib < 24 for mib in growth.values()), growth
