"""Serve's replicas: one picked, all called, and what one knows of itself."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from foredraft.errors import Unavailable

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

_RUNNING_S = 2.0
# Between two looks at whether this replica is being stopped, or a handle knows of replicas.
_LOOK_S = 0.1
# Until then a new handle has its replicas.
_KNOWN_S = 2.0


async def choose_address(handle: DeploymentHandle[Any], timeout_s: float = 2.0) -> str:
    """Return the gRPC address of a replica that Serve picks, out of what it knows, at random.

    Nothing is reserved on the replica: one that stalls would keep the caller for seconds. So it may
    be one that is gone. The call runs in an empty context: inside a request, Serve indexes pending
    calls by the parent's request id and concurrent ones would wait for each other for ever. Raises
    Unavailable when no replica is running within timeout_s.
    """
    from ray.serve.exceptions import DeploymentUnavailableError

    async def choose() -> Mapping[str, Any]:
        # Serve's own ingress passes _reserve so.
        async with handle.describe.choose_replica(_reserve=False) as selection:
            return dict(selection.replica_metadata or {})

    task = asyncio.get_running_loop().create_task(choose(), context=contextvars.Context())
    try:
        async with asyncio.timeout(timeout_s):
            metadata = await task
    except (TimeoutError, DeploymentUnavailableError):
        raise Unavailable("no replica is running") from None
    if "grpc" not in metadata:
        raise Unavailable("the replica is still starting")
    return str(metadata["grpc"])


async def is_running(handle: DeploymentHandle[Any]) -> bool:
    """Return whether a deployment, which is to have replicas, has one that runs."""
    try:
        await choose_address(handle, _RUNNING_S)
    except Unavailable:
        return False
    return True


def call_every_replica(
    handle: DeploymentHandle[Any], method: str, *args: Any, timeout_s: float
) -> list[Any]:
    """Return what a method answers in each of a deployment's replicas.

    Serve's handles block in no thread that runs an event loop, as its caller's may. A new handle
    knows of no replicas for a moment. Raise Unavailable where there are none for longer.
    """
    from ray.serve.exceptions import DeploymentUnavailableError

    until = time.monotonic() + _KNOWN_S
    with ThreadPoolExecutor(1) as caller:
        while True:
            call = caller.submit(
                lambda: list(handle.broadcast(method, *args).results(timeout_s=timeout_s))
            )
            try:
                return call.result()
            except DeploymentUnavailableError:
                if time.monotonic() > until:
                    raise Unavailable("no replica is running") from None
            time.sleep(_LOOK_S)


def own_config() -> Any:
    """Return what this replica was deployed with as its user_config; call it inside one.

    Serve hands it to `reconfigure` once the replica is made, and needs it made to do so.
    """
    from ray.serve.context import _get_internal_replica_context

    context = _get_internal_replica_context()
    assert context is not None
    return context._deployment_config.user_config


def application_name() -> str:
    """Return the name of the application that this replica is a part of."""
    from ray import serve

    return serve.get_replica_context().app_name


async def stopping() -> None:
    """Return when Serve stops this replica; only its own servers learn of it, and at the end."""
    while not _is_stopping():  # noqa: ASYNC110 - Serve has no event for it
        await asyncio.sleep(_LOOK_S)


def _is_stopping() -> bool:
    from ray._private import worker

    connected: Any = worker.global_worker
    return bool(connected.actors[connected.actor_id]._replica_impl._shutting_down)
