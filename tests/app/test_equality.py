"""The promise, through the cluster: the same tokens with and without speculation.

20 held-out prompts x 64 tokens, temperature 0 and 0.8, one stream and eight at once. More of them:
`FOREDRAFT_EQUALITY_PROMPTS=200 pytest tests/app/test_equality.py`.
"""

from __future__ import annotations

import asyncio
import os

import pytest
import pytest_asyncio

from bench.compare.workload import dlm
from deployments.serve.cluster import RunningCluster
from foredraft.client import CompletionClient, CompletionResult
from foredraft.types import Proposal
from foredraft_cli.prompts.held_out import prompts, sampling

PROMPTS = int(os.environ.get("FOREDRAFT_EQUALITY_PROMPTS", "20"))
TOKENS = 64


async def decode(
    client: CompletionClient, temperature: float, streams: int, **options: object
) -> list[CompletionResult]:
    gate = asyncio.Semaphore(streams)

    async def one(index: int, prompt: str) -> CompletionResult:
        async with gate:
            return await client.complete(prompt, sampling(temperature, index), TOKENS, **options)

    return await asyncio.gather(*(one(i, p) for i, p in enumerate(prompts(PROMPTS))))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_speculation_changes_no_token(
    cluster: RunningCluster, client: CompletionClient, temperature: float
) -> None:
    verifier = cluster.health["verifier"]
    assert isinstance(verifier, dict)
    if verifier["numerics"] != "exact":
        pytest.skip(f"this machine's forward is not row-invariant: {verifier['numerics']}")
    plain = await decode(client, temperature, 8, enabled=False)
    assert len(plain) == PROMPTS
    assert sum(len(answer.tokens) for answer in plain) > PROMPTS * TOKENS / 2
    # As the cluster is configured, with rounds led by the verifier, and by the orchestrator.
    for streams, options in ((1, {}), (8, {}), (8, {"verifier_led_rounds": 0})):
        fast = await decode(client, temperature, streams, **options)
        assert sum(answer.report["num_accepted_draft_tokens"] for answer in fast) > PROMPTS
        different = [
            i for i, (a, b) in enumerate(zip(plain, fast, strict=True)) if a.tokens != b.tokens
        ]
        assert different == [], f"{streams} streams {options}: prompts {different} differ"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plainly(cluster: RunningCluster) -> list[tuple[int, ...]]:
    """What plain decoding makes of the texts of every proposal."""
    async with CompletionClient(cluster.url) as client:
        return await three(client, enabled=False)


async def three(client: CompletionClient, **options: object) -> list[tuple[int, ...]]:
    """The tokens of three texts side by side: streams alone are in the test above."""
    answers = await asyncio.gather(
        *(
            client.complete(prompt, sampling(0.8, index), 64, **options)
            for index, prompt in enumerate(prompts(3))
        )
    )
    return [answer.tokens for answer in answers]


@pytest.mark.parametrize("verifier_led_rounds", [0, 16])
@pytest.mark.parametrize("mode", [*Proposal, "ngram+tree"])
async def test_every_proposal_gives_the_plain_tokens(
    client: CompletionClient, plainly: list[tuple[int, ...]], mode: str, verifier_led_rounds: int
) -> None:
    options = dlm(mode, 8).options | {"verifier_led_rounds": verifier_led_rounds}
    assert await three(client, **options) == plainly
