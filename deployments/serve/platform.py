"""Everything of Ray that is alpha, private or set through its environment, in one place."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foredraft.errors import Unavailable

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

# Ray runs its workers at nice 15 unless told otherwise, which starves decoding beside any load.
# Serve's control loop, as often as Serve runs it, takes a twentieth of a core from decoding.
_ENVIRONMENT = {
    "RAY_worker_niceness": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.25",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare_environment() -> None:
    """Set what Ray reads from the environment; call it before Ray is imported or started."""
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)


def pin(cpus: tuple[int, ...]) -> None:
    """Keep this thread, and those it starts, to the CPUs; ones that do not exist are left out."""
    present = os.sched_getaffinity(0).intersection(cpus)
    if present:
        os.sched_setaffinity(0, present)


async def choose_replica(handle: DeploymentHandle[Any], timeout_s: float) -> Mapping[str, Any]:
    """Return the metadata of a replica that Serve picks; its slot is released at once.

    The call runs in an empty context: inside a request, Serve indexes pending calls by the parent's
    request id and concurrent ones would wait for each other for ever. Raises Unavailable when no
    replica is running within timeout_s.
    """

    async def choose() -> Mapping[str, Any]:
        async with handle.describe.choose_replica() as selection:
            return dict(selection.replica_metadata or {})

    task = asyncio.get_running_loop().create_task(choose(), context=contextvars.Context())
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    if not done:
        task.cancel()
        raise Unavailable("no replica is running")
    metadata = task.result()
    if "grpc" not in metadata:
        raise Unavailable("the replica is still starting")
    return metadata
