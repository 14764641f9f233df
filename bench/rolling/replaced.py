"""Waiting until Serve has another replica in place of one that ended."""

from __future__ import annotations

import asyncio
import time

from deployments.serve.deploying import wait_until_deployed
from deployments.serve.processes import replicas
from foredraft.errors import Unavailable

_LOOK_S = 0.25


async def replaced(
    deployment: str, application: str, ended: int, count: int, timeout_s: float
) -> None:
    """Return once the process of a replica is gone and so many run; raise TimeoutError if not."""
    until = time.monotonic() + timeout_s
    while ended in (now := replicas(deployment, application)) or len(now) < count:
        await _look(deployment, until)
    # Until the next one is ready, Serve calls its deployment unhealthy.
    while not await asyncio.to_thread(_healthy, application, timeout_s):
        await _look(deployment, until)


async def _look(deployment: str, until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"{deployment}: no replica in place of the one that ended")
    await asyncio.sleep(_LOOK_S)


def _healthy(application: str, timeout_s: float) -> bool:
    try:
        wait_until_deployed(application, timeout_s)
    except Unavailable:
        return False
    return True
