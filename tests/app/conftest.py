"""One local cluster with the embedded pair for the whole ring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from deployments.config import CHAT_FILE, DIFFUSION_FILE, EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import RunningCluster, deployed, running
from foredraft.client import CompletionClient
from foredraft.gguf.smollm2 import smollm2_target
from orchestrator.length.config import ByTemperatureConfig, FixedConfig
from tests.support.cluster import free_port


def _always_drafting(file: ServeFile, grpc_port: int) -> ServeFile:
    """The file with gRPC, its controller one that drafts even where that does not pay."""
    changed = file.model_dump()
    [application] = changed["applications"]
    lengths = ByTemperatureConfig(greedy=FixedConfig(k=15), sampled=FixedConfig(k=5))
    application["args"]["orchestrator"]["adl"] = lengths.model_dump()
    application["args"]["ingress"]["grpc"] = {"port": grpc_port}
    application["args"]["ingress"]["direct"]["port"] = free_port()
    application["args"]["ingress"]["playground"] = {"kill_drafter": True}
    return ServeFile.model_validate(changed)


@pytest.fixture(scope="session")
def grpc_port() -> int:
    """Where the ring's cluster serves gRPC."""
    return free_port()


@pytest.fixture(scope="session")
def cluster(grpc_port: int) -> Iterator[RunningCluster]:
    file = _always_drafting(read(EMBEDDED_FILE), grpc_port)
    with running(file) as started:
        yield started


@pytest.fixture(scope="session")
def chat(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The chat pair beside the embedded one, on its Ray, from the first test that needs it on."""
    if smollm2_target() is None:
        pytest.skip("foredraft fetch could not bring the target")
    values = read(CHAT_FILE).model_dump()
    [application] = values["applications"]
    application |= {"name": "chat", "route_prefix": "/chat"}
    application["args"]["ingress"]["direct"]["port"] = free_port()
    with running(ServeFile.model_validate(values)) as started:
        yield started


@pytest.fixture(scope="session")
def kinds(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The any-subset and a block-diffusion target in one application, on the embedded one's Ray."""
    values = read(DIFFUSION_FILE.with_name("any_subset.yaml")).model_dump()
    [application] = values["applications"]
    application |= {"name": "kinds", "route_prefix": "/kinds"}
    application["args"]["ingress"]["direct"]["port"] = free_port()
    [beside] = read(DIFFUSION_FILE).model_dump()["applications"]
    application["args"]["denoiser"] = beside["args"]["denoiser"]
    # As `foredraft serve` starts it.
    with running(ServeFile.model_validate(values), start=deployed) as started:
        yield started


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[CompletionClient]:
    async with CompletionClient(cluster.url) as opened:
        yield opened
