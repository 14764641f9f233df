"""One local cluster with the embedded pair for the whole ring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import RunningCluster, running
from foredraft.client import CompletionClient
from orchestrator.length.config import ByTemperatureConfig, FixedConfig
from tests.support.cluster import free_port


def _always_drafting(file: ServeFile) -> ServeFile:
    """The file, its controller one that drafts even where that does not pay."""
    changed = file.model_dump()
    [application] = changed["applications"]
    lengths = ByTemperatureConfig(greedy=FixedConfig(k=15), sampled=FixedConfig(k=5))
    application["args"]["orchestrator"]["adl"] = lengths.model_dump()
    return ServeFile.model_validate(changed)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    file = _always_drafting(read(EMBEDDED_FILE))
    http = file.http_options.model_copy(update={"port": free_port()})
    with running(file.model_copy(update={"http_options": http})) as started:
        yield started


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[CompletionClient]:
    async with CompletionClient(cluster.url) as opened:
        yield opened
