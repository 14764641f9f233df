"""The examples, run as a reader runs them, against a real server and real services."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from denoiser_service.client import DenoiserClient
from denoiser_service.config import DenoiserConfig
from denoiser_service.server import serve as serve_denoiser
from deployments.config import ServeFile, model_path
from deployments.serve.cluster import RunningCluster
from drafter_service.config import DrafterConfig
from drafter_service.server import serve as serve_drafter
from foredraft.client import CompletionClient
from foredraft.decoding.block_state import hash_state, opened
from foredraft.decoding.prefix import hash_prefix
from foredraft.denoising import Advance, DenoiseOpen, Dynamic
from foredraft.strict import parse
from foredraft.types import Base, SamplingParams
from foredraft_simulator.scenario.scenario import read_scenario
from foredraft_simulator.simulate import simulate
from foredraft_simulator.traces.arrival import Arrival
from tests.support.tiny_models import write_tiny
from verifier_service.config import VerifierConfig
from verifier_service.server import serve as serve_verifier

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROMPT = "def mean(values):"


async def output(*command: str, **environment: str) -> str:
    """Run a command in the repository; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])} | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    return out.decode()


def events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


async def expected(client: CompletionClient, sampling: SamplingParams, count: int) -> Any:
    """Return what plain decoding makes of the examples' prompt."""
    return await client.complete(PROMPT, sampling, count, enabled=False)


async def test_curl_streams_the_text(cluster: RunningCluster, client: CompletionClient) -> None:
    out = await output("examples/completion.sh", FOREDRAFT_URL=cluster.url)
    text = "".join(event["choices"][0]["text"] for event in events(out))
    assert text == (await expected(client, SamplingParams(), 32)).text
    assert out.rstrip().endswith("data: [DONE]")


async def test_the_openai_client_gets_one_text_with_and_without_drafts(
    cluster: RunningCluster, client: CompletionClient
) -> None:
    out = await output(sys.executable, "examples/openai_client.py", FOREDRAFT_URL=cluster.url)
    assert (await expected(client, SamplingParams(0.8, seed=1), 64)).text in out
    assert out.endswith("identical: True\n")


async def test_grpc_has_the_text_of_http(cluster: RunningCluster, grpc_port: int) -> None:
    address = f"127.0.0.1:{grpc_port}"
    out = await output(
        sys.executable,
        "examples/grpc_client.py",
        FOREDRAFT_URL=cluster.url,
        FOREDRAFT_GRPC=address,
    )
    assert " of 48 tokens were drafted" in out
    assert out.endswith("identical: True\n")


async def test_the_detail_of_a_stream_names_every_tokens_origin(
    cluster: RunningCluster,
) -> None:
    out = await output(sys.executable, "examples/streaming_detail.py", FOREDRAFT_URL=cluster.url)
    *blocks, summary = out.splitlines()
    origins = [word for block in blocks for word in block.rsplit("'", 1)[-1].split()]
    assert summary.startswith("48 tokens in")
    assert len(origins) == 48
    assert set(origins) <= {"kept", "correction", "bonus", "plain"}


def service(kind: type[Any], name: str) -> Any:
    """Return an example's service configuration, on a free port."""
    values = yaml.safe_load((EXAMPLES / name).read_text())
    return parse(kind, values | {"model": model_path(values["model"]), "port": 0})


async def test_an_orchestrator_of_ones_own_gives_the_servers_tokens(
    client: CompletionClient,
) -> None:
    drafter = await serve_drafter(service(DrafterConfig, "drafter.yaml"))
    verifier = await serve_verifier(service(VerifierConfig, "verifier.yaml"))
    try:
        out = await output(
            sys.executable,
            "examples/own_orchestrator.py",
            DRAFTER=f"127.0.0.1:{drafter.port}",
            VERIFIER=f"127.0.0.1:{verifier.port}",
        )
    finally:
        await drafter.stop()
        await verifier.drain()
    token_ids = tuple(map(int, out.splitlines()[-1].split()))
    answer = await expected(client, SamplingParams(0.8, seed=1), 48)
    assert token_ids == answer.tokens
    assert answer.text in out


async def test_a_denoiser_of_ones_own_is_served(tmp_path: Path) -> None:
    model = write_tiny(tmp_path, block_diffusion={"block_length": 8, "mask_token_id": 1})
    values = yaml.safe_load((EXAMPLES / "denoiser.yaml").read_text())
    server = await serve_denoiser(parse(DenoiserConfig, values | {"model": model, "port": 0}))
    client = DenoiserClient(f"127.0.0.1:{server.port}")
    try:
        stream = await client.open(DenoiseOpen("s", (2, 3, 4), SamplingParams(), 5, Dynamic()))
        assert stream.model.block_length == 8
        named = hash_state(hash_prefix(()), 0, opened((2, 3, 4), 8))
        answer = await stream.advance(Advance(Base("s", 0, 0, named), 8))
        assert answer.committed[:3] == (2, 3, 4) and len(answer.committed) == 8
        assert not answer.block
    finally:
        await client.close()
        await server.stop()


def test_the_qwen_configuration_is_valid() -> None:
    file = parse(ServeFile, yaml.safe_load((EXAMPLES / "qwen.yaml").read_text()))
    args = file.application.args
    assert args.verifier.service.device == args.drafter.service.device == "cuda"
    assert args.drafter.service.target_tokenizer == args.tokenizer / "tokenizer.json"


@pytest.mark.parametrize("path", sorted((EXAMPLES / "scenarios").iterdir()), ids=lambda p: p.stem)
def test_a_scenario_is_simulated(path: Path) -> None:
    outcome = simulate(read_scenario(path), [Arrival(0.0, 64, 32)])
    assert outcome.errors == 0 and outcome.requests[0].tokens == 32


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_every_example_is_named_here(path: Path) -> None:
    assert path.name in Path(__file__).read_text()
