"""A verifier of two ranks over gloo, each a process: the same tokens as one, and none hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import ConfigError, Unavailable
from foredraft.messages import Round, VerifyOpen
from foredraft.types import Base, SamplingParams
from tests.support.tiny_models import write_tiny
from tests.support.waiting import DEADLINE_S
from verifier_service.client import VerifierClient
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine
from verifier_service.parallel import ranks
from verifier_service.server import VerifierServer, serve

PROMPT = tuple(7 * i % 250 for i in range(90))
SIZES = {
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "llama", **SIZES)


@asynccontextmanager
async def running(model: Path, world: int) -> AsyncIterator[tuple[VerifierServer, VerifierClient]]:
    config = VerifierConfig(
        model=model, dtype="fp32", tensor_parallel=world, kv_tokens=4096, row_budget=64, grace_s=1
    )
    server = await serve(config)
    client = VerifierClient(f"127.0.0.1:{server.port}")
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop()


async def decoded(client: VerifierClient, name: str, temperature: float) -> list[int]:
    """Decode with drafts, paths and trees, that are partly right."""
    sampling = SamplingParams(temperature=temperature, seed=3)
    stream = await client.open(VerifyOpen(name, PROMPT, sampling, 60, 8))
    text, number = list(PROMPT), 0
    while len(text) < len(PROMPT) + 50:
        # What plain decoding finds first, then a draft of it with a wrong token, or as a branch.
        base = Base(name, number, len(text), hash_prefix(text))
        draft = (text[-1], 5, text[-2], 9) if number % 2 else ()
        parents = (-1, -1, 0, 1) if number % 4 == 1 else ()
        verdict = await stream.verify(Round(base, draft, 3, parents if draft else ()))
        text += [*(draft[node] for node in verdict.kept), *verdict.next_tokens]
        number += 1
    await stream.close()
    return text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen3"])
async def test_two_ranks_find_the_tokens_of_one(name: str, tmp_path: Path) -> None:
    checkpoint = write_tiny(tmp_path / name, name, **SIZES)
    async with running(checkpoint, 1) as (_, client):
        alone = [await decoded(client, str(t), t) for t in (0.0, 0.9)]
    async with running(checkpoint, 2) as (server, client):
        together = await asyncio.gather(*(decoded(client, str(t), t) for t in (0.0, 0.9)))
        server.check_health()
    assert together == alone
    assert len(set(alone[1])) > 10


@pytest.mark.slow
async def test_a_killed_rank_ends_the_verifier_and_hangs_nobody(checkpoint: Path) -> None:
    started: list[ranks.ProcessRanks] = []

    def start(config: VerifierConfig, address: str) -> ranks.ProcessRanks:
        started.append(ranks.ProcessRanks(config, address))
        return started[0]

    config = VerifierConfig(model=checkpoint, dtype="fp32", tensor_parallel=2, row_budget=64)
    server = await serve(config, start)
    client = VerifierClient(f"127.0.0.1:{server.port}")
    try:
        stream = await client.open(VerifyOpen("s", PROMPT, SamplingParams(), 60, 8))
        base = Base("s", 0, len(PROMPT), hash_prefix(PROMPT))
        await stream.verify(Round(base, (), 1))
        [process] = started[0]._processes
        process.kill()
        process.wait()
        async with asyncio.timeout(DEADLINE_S):
            again = await client.open(VerifyOpen("t", PROMPT[:50], SamplingParams(), 60, 8))
            base = Base("t", 0, 50, hash_prefix(PROMPT[:50]))
            with pytest.raises(Unavailable):
                await again.verify(Round(base, (), 1))
        with pytest.raises(Unavailable):
            server.check_health()
    finally:
        await client.close()
        async with asyncio.timeout(DEADLINE_S):
            await server.stop()


def test_what_cannot_be_shared_is_refused(checkpoint: Path) -> None:
    config = VerifierConfig(model=checkpoint, tensor_parallel=2)
    with pytest.raises(ConfigError) as caught:
        load_engine(config)
    assert caught.value.param == "tensor_parallel"


@pytest.mark.slow
async def test_heads_that_ranks_cannot_share_are_refused(checkpoint: Path) -> None:
    config = VerifierConfig(model=checkpoint, dtype="fp32", tensor_parallel=3)
    with pytest.raises(ConfigError, match="3 ranks cannot share 2 KV heads"):
        await serve(config)
