"""One local cluster with the embedded pair for the whole ring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest

from deployments.config import CHAT_FILE, EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import RunningCluster, running
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
    application["args"]["ingress"]["playground"] = {"kill_drafter": True}
    return ServeFile.model_validate(changed)


@pytest.fixture(scope="session")
def grpc_port() -> int:
    """Where the ring's cluster serves gRPC."""
    return free_port()


@pytest.fixture(scope="session")
def cluster(grpc_port: int) -> Iterator[RunningCluster]:
    file = _always_drafting(read(EMBEDDED_FILE), grpc_port)
    http = file.http_options.model_copy(update={"port": free_port()})
    with running(file.model_copy(update={"http_options": http})) as started:
        yield started


@pytest.fixture(scope="module")
def chat(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The chat pair beside the embedded one, on its Ray and its port."""
    if smollm2_target() is None:
        pytest.skip("foredraft fetch could not bring the target")
    values = read(CHAT_FILE).model_dump()
    values["applications"][0] |= {"name": "chat", "route_prefix": "/chat"}
    values["http_options"]["port"] = urlsplit(cluster.url).port
    with running(ServeFile.model_validate(values)) as started:
        yield started


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[CompletionClient]:
    async with CompletionClient(cluster.url) as opened:
        yield opened
