"""A running cluster seen from outside: its processes, and plain HTTP."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import aiohttp

from deployments.serve.cluster import RunningCluster
from deployments.serve.processes import replicas


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def post(cluster: RunningCluster, body: Any) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{cluster.url}/v1/completions", data=data, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


def replica_pids(deployment: str) -> list[int]:
    """Return the process ids of a deployment's replicas in this process's cluster."""
    return replicas(deployment)


def pids(start: str) -> list[int]:
    """Return the processes whose title, that Ray gives them, begins so."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if title.startswith(start):
            found.append(int(folder.name))
    return found
