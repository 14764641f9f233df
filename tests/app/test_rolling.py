"""Changes of a running application under load: no request fails, and no token differs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.rolling.run import RollingPlan, loaded, roll
from bench.rolling.updates import updates
from deployments.canary.comparison import Outcome
from deployments.config import EMBEDDED_FILE, ServeFile, located, read
from deployments.serve.cluster import RunningCluster, deployed, running
from deployments.serve.deploying import deploy, wait_until_deployed
from foredraft_cli.cluster.status import of_connected
from tests.support.cluster import free_port, pids
from tests.support.random_drafter import with_random_weights

NAME = "rolling"
OTHER_PROCESSES = {"ingress.cors_origins": ["*"], "verifier.service.kv_tokens": 16384}
PLAN = RollingPlan(
    requests=0,
    clients=3,
    texts=4,
    max_tokens=32,
    rest_s=2.0,
    changes=(
        ("in place", {"orchestrator.adl": {"name": "fixed", "k": 6}}),
        ("another model", {"drafter.service.model": "COPY"}),
        ("other processes", OTHER_PROCESSES),
    ),
)
_MOST_S = 90.0


def changed(file: ServeFile, **parts: dict[str, Any]) -> ServeFile:
    """The file with other values in parts of its arguments."""
    values = file.model_dump()
    for part, update in parts.items():
        values["applications"][0]["args"][part] |= update
    return ServeFile.model_validate(values)


@pytest.fixture(scope="module")
def file() -> ServeFile:
    values = read(EMBEDDED_FILE).model_dump()
    [application] = values["applications"]
    application |= {"name": NAME, "route_prefix": f"/{NAME}"}
    args = application["args"]
    args["ingress"]["direct"]["port"] = free_port()
    # On a slow machine an answer takes longer than the default, and is none to be cut.
    args["ingress"]["drain_s"] = 30
    # A length at any load, and drafts of the drafter alone.
    args["orchestrator"] |= {"adl": {"name": "fixed", "k": 8}, "ngram": {"enabled": False}}
    return ServeFile.model_validate(values)


@pytest.fixture(scope="module")
def served(file: ServeFile) -> Iterator[RunningCluster]:
    with running(file, start=deployed) as started:
        yield started


def replicas(deployment: str) -> set[int]:
    return set(pids(f"ray::ServeReplica:{NAME}:{deployment}"))


@pytest.mark.slow
async def test_what_needs_no_new_process_gets_none(served: RunningCluster, file: ServeFile) -> None:
    before = {name: replicas(name) for name in ("ingress", "drafter", "verifier")}
    await live(changed(file, drafter={"num_replicas": 2}))
    await settled(lambda: len(replicas("drafter")) == 2)
    assert before["drafter"] < replicas("drafter")
    # The last number, a proposal and a period of grace, in place.
    await live(changed(file, orchestrator={"proposal": "coupled"}, verifier={"drain_s": 3}))
    body = {"prompt": "def area(", "max_tokens": 24, "temperature": 0}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{served.url}/v1/completions", json=body) as answer,
    ):
        found = (await answer.json())["metrics"]["speculative_decoding"]
    assert found["proposal"] == "coupled"
    await settled(lambda: len(replicas("drafter")) == 1)
    for name in ("ingress", "verifier"):
        assert replicas(name) == before[name]


@pytest.mark.slow
async def test_no_request_notices_a_change(served: RunningCluster, file: ServeFile) -> None:
    await live(file)
    before = {name: replicas(name) for name in ("ingress", "drafter", "verifier")}
    rolled = await roll(served.url, file, PLAN, lambda line: None)
    assert not rolled.tally.failed
    assert rolled.tally.identical == rolled.tally.requests > 50
    assert [done.deployments for done in rolled.changes] == [
        {"ingress": "changed in place"},
        {"ingress": "changed in place", "drafter": "replaced, one after the other"},
        {
            "ingress": "replaced, one after the other",
            "verifier": "replaced, one after the other",
        },
    ]
    for name, old in before.items():
        assert not old & replicas(name), name


@pytest.mark.slow
async def test_a_bad_canary_is_rolled_back(
    served: RunningCluster, file: ServeFile, tmp_path: Path
) -> None:
    """A drafter of random weights, for half of the sessions: no text differs meanwhile."""
    service = located(file.application.args).drafter.service
    [update] = updates(file, Path(), (("", OTHER_PROCESSES),))
    random = service.model_copy(update={"model": with_random_weights(service.model, tmp_path)})
    trial = {"share": 0.5, "comparison": {"min_sessions": 12, "max_sessions": 96, "margin": 0.5}}
    bad = changed(update.file, drafter={"canary": trial | {"service": random}})
    began = time.time()

    def over() -> bool:
        trial = canary()
        return bool(trial and trial["at"] > began and trial["outcome"])

    async with loaded(served.url, PLAN) as clients:
        await live(bad)
        await settled(over)
        found = canary()
        # The application follows the verdict meanwhile.
        await asyncio.sleep(PLAN.rest_s)
    assert not clients.tally.failed
    assert clients.tally.identical == clients.tally.requests
    assert found["outcome"] == Outcome.ROLLED_BACK
    assert "accepted tokens per round" in found["reason"]
    await settled(lambda: not replicas("canary"))


def canary() -> dict[str, Any]:
    [status] = [each for each in of_connected() if each["application"] == NAME]
    found: dict[str, Any] = status["canary"]
    return found


async def live(file: ServeFile) -> None:
    await asyncio.to_thread(deploy, file)
    await asyncio.to_thread(wait_until_deployed, NAME, _MOST_S)


async def settled(holds: Any) -> None:
    until = time.monotonic() + _MOST_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < until
        await asyncio.sleep(0.25)
