"""Losing a part of the cluster changes how soon the tokens come, not which ones."""

from __future__ import annotations

import os
import signal

import aiohttp

from deployments.serve.cluster import RunningCluster
from foredraft.client import CompletionClient
from foredraft.types import Origin
from foredraft_cli.prompts.held_out import prompts, sampling
from tests.support.cluster import replica_pids
from tests.support.waiting import eventually


async def health(cluster: RunningCluster) -> dict[str, dict[str, float]]:
    async with aiohttp.ClientSession() as http, http.get(f"{cluster.url}/health") as answer:
        return dict(await answer.json())


async def test_drafter_killed_in_mid_stream(client: CompletionClient) -> None:
    prompt, params, length = prompts(1)[0], sampling(0.8, 0), 400
    plain = await client.complete(prompt, params, length, enabled=False)
    tokens, killed = [], False
    async for _, block in client.stream(prompt, params, length):
        tokens += [committed.token for committed in block]
        if len(tokens) > 20 and not killed:
            [pid] = replica_pids("drafter")
            os.kill(pid, signal.SIGKILL)
            killed = True
    assert killed
    assert tuple(tokens) == plain.tokens

    async def speculates() -> bool:
        answer = await client.complete(prompt, params, 64)
        assert answer.tokens == plain.tokens[:64]
        return answer.report["origins"].get(Origin.KEPT, 0) > 0

    await eventually(speculates)


async def test_verifier_killed_in_mid_stream(client: CompletionClient) -> None:
    prompt, params, length = prompts(2)[1], sampling(0.8, 1), 300
    plain = await client.complete(prompt, params, length, enabled=False)
    tokens, killed = [], False
    async for _, block in client.stream(prompt, params, length):
        tokens += [committed.token for committed in block]
        if len(tokens) > 20 and not killed:
            [pid] = replica_pids("verifier")
            os.kill(pid, signal.SIGKILL)
            killed = True
    assert killed
    assert tuple(tokens) == plain.tokens


async def test_client_gone_frees_both_sides(
    cluster: RunningCluster, client: CompletionClient
) -> None:
    async def idle() -> bool:
        state = await health(cluster)
        return all(
            (state[service] or {}).get("sessions") == 0 for service in ("verifier", "drafter")
        )

    await eventually(idle)
    for _ in range(4):
        async for _, block in client.stream(prompts(1)[0], sampling(0.8, 3), 1500):
            assert block
            break  # leaving the loop closes the connection
    await eventually(idle)
