"""A verifier of two ranks, actors in one placement group, behind the whole application."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.config import EMBEDDED_FILE, ForedraftConfig, model_path, read
from deployments.serve.cluster import RunningCluster, running
from foredraft.client import CompletionClient
from foredraft.messages import VerifyOpen
from foredraft.strict import parse
from foredraft.types import SamplingParams
from tests.support.cluster import free_port, pids
from tests.support.tiny_models import write_tiny
from tests.support.verifiers import decoded
from verifier_service.config import VerifierConfig
from verifier_service.load import load_engine

LENGTH = 40


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target of the embedded pair's vocabulary."""
    folder = write_tiny(
        tmp_path_factory.mktemp("models") / "tiny",
        vocab_size=4096,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    shutil.copy(f"{model_path('models/embedded/tokenizer')}/tokenizer.json", folder)
    return folder


@pytest.fixture(scope="module")
def two_ranks(cluster: RunningCluster, checkpoint: Path) -> Iterator[str]:
    """The URL of an application beside the ring's own, whose verifier has two ranks."""
    file = read(EMBEDDED_FILE)
    args = file.application.args.model_dump()
    args["ingress"]["direct"]["port"] = free_port()
    args["verifier"]["service"] = {
        "model": checkpoint,
        "dtype": "fp32",
        "tensor_parallel": 2,
        "row_budget": 32,
    }
    entry = file.application.model_copy(
        update={
            "name": "ranks",
            "route_prefix": "/ranks",
            "args": parse(ForedraftConfig, args),
        }
    )
    with running(file.model_copy(update={"applications": [entry]})) as started:
        yield started.url


def alone(checkpoint: Path, prompt: list[int], sampling: SamplingParams) -> tuple[int, ...]:
    """What one rank decodes plainly, without a cluster."""
    engine = load_engine(VerifierConfig(model=checkpoint, dtype="fp32", row_budget=32))
    handle = engine.open(VerifyOpen("s", tuple(prompt), sampling, LENGTH, 0, (0,)))
    return decoded(engine, handle, prompt, LENGTH, stops=(0,))


async def test_two_ranks_find_the_tokens_of_one(two_ranks: str, checkpoint: Path) -> None:
    prompt = [*range(300, 400)]
    async with CompletionClient(two_ranks) as client:
        for temperature in (0.0, 0.8):
            sampling = SamplingParams(temperature=temperature, seed=4)
            expected = alone(checkpoint, prompt, sampling)
            for enabled in (True, False):
                answer = await client.complete(prompt, sampling, LENGTH, enabled=enabled)
                assert answer.tokens == expected


async def test_a_killed_rank_is_replaced_and_the_text_goes_on(two_ranks: str) -> None:
    sampling, prompt = SamplingParams(temperature=0.8, seed=4), [*range(300, 400)]
    async with CompletionClient(two_ranks) as client:
        before = await client.complete(prompt, sampling, 300)
        tokens: list[int] = []
        async for _, block in client.stream(prompt, sampling, 300):
            if not tokens:
                [pid] = pids("ray::Rank.run")
                os.kill(pid, signal.SIGKILL)
            tokens += [committed.token for committed in block]
        assert tuple(tokens) == before.tokens
        assert pids("ray::Rank.run") not in ([], [pid])
