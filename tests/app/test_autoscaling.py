"""Both pools scaled by the policy on a real cluster: with the load, with reasons, the same text."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from deployments.config import EMBEDDED_FILE, ROOT
from tests.app.test_serve_command import serving
from tests.support.cluster import free_port, pids

PROMPT = "def area(width, height):\n"
_QUICK = {"up_hold_s": 1, "down_hold_s": 4}
_MOST_S = 60.0


def configuration(folder: Path, port: int) -> Path:
    values = yaml.safe_load(EMBEDDED_FILE.read_text())
    [entry] = values["applications"]
    entry["name"] = "scaled"
    entry["autoscaling_policy"] = {
        "policy_function": "deployments.autoscaling.serve_policy:ScalingPolicy",
        "policy_kwargs": {
            "policy": "goodput",
            "interval_s": 0.5,
            "warm_up_s": 2,
            "drafter_steps": _QUICK,
            "verifier_steps": _QUICK,
            # A drafter of this machine is a core of two: here it has to be wanted at any load.
            "goodput": {"price": 0.01, "spare_busy": 1.0, "probe_s": 0},
        },
    }
    args = entry["args"]
    args["ingress"]["direct"]["port"] = port
    args["drafter"]["autoscaling"] = {"min_replicas": 0, "max_replicas": 1}
    args["verifier"]["autoscaling"] = {"min_replicas": 1, "max_replicas": 2}
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def replicas(pool: str) -> int:
    return len(pids(f"ray::ServeReplica:scaled:{pool}"))


async def comes(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_MOST_S):
        while not holds():
            await asyncio.sleep(0.25)


async def tokens(http: aiohttp.ClientSession, url: str, count: int) -> list[int]:
    body = {
        "prompt": PROMPT,
        "max_tokens": count,
        "temperature": 0.8,
        "seed": 5,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    async with http.post(f"{url}/v1/completions", json=body) as answer:
        found: dict[str, Any] = await answer.json()
        assert answer.status == 200, found
        ids: list[int] = found["choices"][0]["token_ids"]
        return ids


def status() -> dict[str, Any]:
    """What `foredraft status` says of the newest cluster."""
    code = "from foredraft_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "status", "--json"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout[done.stdout.index("[\n") :])
    return dict(found)


def decisions(pool: str) -> list[str]:
    """What the policy said of a pool, in the controllers' logs of the last cluster."""
    logs = Path("/tmp/ray/session_latest/logs/serve").glob("controller_*.log")
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [line for line in lines if f"autoscaling {pool}: " in line]


@pytest.mark.slow
async def test_the_pools_follow_the_load(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    stop = asyncio.Event()
    texts: list[list[int]] = []

    async def client(http: aiohttp.ClientSession) -> None:
        while not stop.is_set():
            texts.append(await tokens(http, url, 200))

    with serving(configuration(tmp_path, port)):
        async with aiohttp.ClientSession() as http:
            assert (replicas("drafter"), replicas("verifier")) == (0, 1)
            alone = await tokens(http, url, 200)
            clients = [asyncio.create_task(client(http)) for _ in range(8)]
            await comes(lambda: replicas("drafter") == 1)
            await comes(lambda: replicas("verifier") == 2)
            told = await asyncio.to_thread(status)
            stop.set()
            await asyncio.gather(*clients)
            await comes(lambda: replicas("drafter") == 0)
            await comes(lambda: replicas("verifier") == 1)
            again = await tokens(http, url, 200)
    assert texts and all(text == alone for text in (*texts, again))
    assert told["application"] == "scaled" and set(told["pools"]) == {
        "ingress",
        "drafter",
        "verifier",
    }
    assert told["decisions"]["verifier"]["target"] == 2
    drafter, verifier = decisions("drafter"), decisions("verifier")
    assert any("0 -> 1" in line and "a draft has" in line for line in drafter), drafter
    assert any("no rounds" in line for line in drafter)
    assert any("1 -> 2" in line and "busy needs" in line for line in verifier), verifier
