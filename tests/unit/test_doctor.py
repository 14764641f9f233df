"""The doctor names what was planted, in servers that decode over scripted peers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fastapi import FastAPI

from deployments.canary.arms import OneArm
from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.install import install
from deployments.ingress.doors.keys import Key
from deployments.ingress.generations import Generations
from deployments.ingress.openai.routes import application, handlers
from foredraft.errors import InvalidRequest, Unavailable
from foredraft.messages import DraftBlock, Propose
from foredraft.types import Price
from foredraft_cli.doctor.checks import diagnose
from foredraft_cli.doctor.facts import Facts, Probe, gather
from foredraft_cli.doctor.machine import examine
from foredraft_cli.remote import Server
from orchestrator.config import OrchestratorConfig
from orchestrator.length.config import FixedConfig, GoodputConfig, PlainConfig
from orchestrator.session.compatibility import why_incompatible
from tests.support.cluster import free_port
from tests.support.http import listening
from tests.support.orchestrator.peers import (
    MODEL,
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    true_block,
    wrong_at,
)
from tests.unit.ingress.test_routes import TOKENIZER, TOKENIZER_FILE

PROMPTS = [f"def f{number}(x):" for number in range(6)]
DRAFTING = {"adl": FixedConfig(k=4), "draft_deadline_ms": 20.0}


class Planted:
    """A server over scripted peers, and what its /health says."""

    def __init__(self, **fields: Any) -> None:
        self.verifier, self.drafter = ScriptedVerifier(), ScriptedDrafter()
        self.config: OrchestratorConfig = config(**(DRAFTING | fields))
        self.health: dict[str, Any] | None = {
            "verifier": {"model": "scripted", "numerics": "exact", "busy": 0.1},
            "drafter": {"model": "drafter", "refused": None},
        }

    def app(self) -> FastAPI:
        async def health() -> dict[str, Any] | None:
            return self.health

        made = Generations(
            "scripted",
            MODEL,
            TOKENIZER,
            self.config,
            OneArm(self.drafter),
            self.verifier,
            lambda *_: None,
        )
        return application(handlers(made, TOKENIZER_FILE), health)

    def of(self, service: str, **fields: Any) -> None:
        assert self.health is not None
        self.health[service] |= fields


def names(facts: Facts) -> list[str]:
    return [finding.name for finding in diagnose(facts)]


async def examined(app: Any, key: str = "", max_tokens: int = 24) -> Facts:
    async with listening(app) as url, Server(url, key) as server:
        return await gather(server, PROMPTS, max_tokens)


# What goes by the clock of a machine that runs other tests, too.
TIMED = {"far_verifier", "late_drafts", "slow_drafter", "slower"}


async def test_nothing_is_wrong_with_a_healthy_server() -> None:
    assert set(names(await examined(Planted().app()))) <= TIMED


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"verify_s": 0.02}, ["far_verifier"]),
        ({"drafter_s": 0.02}, ["slow_drafter"]),
    ],
)
async def test_what_takes_too_long_is_named_by_the_rounds_own_times(
    changed: dict[str, float], found: list[str]
) -> None:
    facts = await examined(Planted().app())
    times = {"draft_wait_s": 0.0, "verify_s": 0.01, "verifier_queue_s": 0.0, "verifier_s": 0.01}
    for one in facts.rounds:
        one.update(times | {"drafter_s": 0.001} | changed)

    def taking(plain_s: float, fast_s: float) -> list[str]:
        probes = (
            Probe(replace(probe.plain, seconds=plain_s), replace(probe.fast, seconds=fast_s))
            for probe in facts.probes
        )
        return names(replace(facts, probes=tuple(probes)))

    assert [name for name in taking(2.0, 1.0) if name != "late_drafts"] == found
    assert "slower" in taking(1.0, 2.0)


async def test_no_server() -> None:
    async with Server(f"http://127.0.0.1:{free_port()}") as server:
        assert names(await gather(server, PROMPTS, 8)) == ["no_server"]


async def test_another_server() -> None:
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "up"}

    assert names(await examined(app)) == ["other_server"]
    assert names(await examined(FastAPI())) == ["other_server"]


async def test_a_missing_key() -> None:
    app = Planted().app()
    key = Key(name="a", sha256="0" * 64)
    install(app, Admission([key], lambda: 0.0), ())
    assert names(await examined(app)) == ["no_key"]


async def test_a_verifier_that_is_not_there() -> None:
    planted = Planted()
    planted.health = None
    assert names(await examined(planted.app())) == ["no_verifier"]


def _without_drafter(planted: Planted) -> None:
    async def refuse(_: int) -> None:
        raise Unavailable("nobody")

    assert planted.health is not None
    planted.health["drafter"] = None
    planted.drafter.opening = refuse


def _refused(**fields: Any) -> Callable[[Planted], None]:
    def plant(planted: Planted) -> None:
        model = replace(MODEL, **fields)
        planted.drafter.opened = planted.drafter.opened._replace(model=model)
        planted.of("drafter", refused=why_incompatible(model, MODEL))

    return plant


def _refusing(planted: Planted) -> None:
    async def refuse(_: int) -> None:
        raise InvalidRequest("params.steps must be 1 for this model")

    planted.drafter.opening = refuse


def _off(planted: Planted) -> None:
    planted.config = planted.config.model_copy(update={"adl": PlainConfig()})


def _wrong(planted: Planted) -> None:
    async def wrong(_: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        return wrong_at(true_block(ask, prefix), 0)

    planted.drafter.script = wrong


def _late(planted: Planted) -> None:
    async def late(_: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        await asyncio.sleep(0.06)
        return true_block(ask, prefix)

    planted.drafter.script = late


def _far(planted: Planted) -> None:
    async def away(_: int) -> None:
        await asyncio.sleep(0.008)

    planted.verifier.before = away


def _dear(planted: Planted) -> None:
    _wrong(planted)
    planted.verifier.price = Price(4, 0.01, 0.02, 0.0, 1)
    planted.config = planted.config.model_copy(update={"adl": GoodputConfig()})


PLANTS: dict[str, Callable[[Planted], None]] = {
    "no_drafter": _without_drafter,
    "drafter_refused": _refused(tokenizer_hash="another"),
    "session_refused": _refusing,
    "off": _off,
    "stale_drafter": _wrong,
    "late_drafts": _late,
    "far_verifier": _far,
    "busy": lambda planted: planted.of("verifier", busy=0.97, queue=7),
    "kv_full": lambda planted: planted.of("verifier", kv_used=990.0, kv_total=1000.0),
    "inexact": lambda planted: planted.of("verifier", numerics="tolerance 0.01"),
}


@pytest.mark.parametrize("planted", PLANTS)
async def test_what_was_planted_is_named_with_a_number_and_a_change(planted: str) -> None:
    server = Planted()
    PLANTS[planted](server)
    found = diagnose(await examined(server.app()))
    [finding] = [each for each in found if each.name == planted]
    assert any(character.isdigit() for character in finding.what) or planted in (
        "no_drafter",
        "drafter_refused",
    )
    assert finding.change
    # What comes of the cause may be named behind it, nothing before.
    consequences = {"slower", "late_drafts", "off", "far_verifier", "does_not_pay"}
    assert {each.name for each in found} - {planted} <= consequences


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"tokenizer_hash": "another"}, "target_tokenizer"),
        ({"features_hash": "f", "features_width": 4}, "verifier.service.features"),
    ],
)
async def test_a_refused_drafters_change_fits_its_fault(fields: dict[str, Any], told: str) -> None:
    server = Planted()
    _refused(**fields)(server)
    [first, *_] = diagnose(await examined(server.app()))
    assert first.name == "drafter_refused" and told in first.change


async def test_a_text_that_differs_is_a_bug_where_numerics_are_exact() -> None:
    """Over a server that answers something else with drafts than without."""
    calls = 0

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"verifier": {"model": "m", "numerics": "exact"}, "drafter": {}})

    async def complete(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        fast = (await request.json())["speculative"]["enabled"]
        choice = {"token_ids": [1, 2, 3 + fast], "rounds": []}
        report = {"speculative_decoding": {"drafter_refusal": None}}
        return web.json_response({"choices": [choice], "metrics": report})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with Server(f"http://127.0.0.1:{port}") as server:
            found = names(await gather(server, PROMPTS, 8))
    finally:
        await runner.cleanup()
    assert "differs" in found and calls == 2 * len(PROMPTS)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("applications: [{args: {orchestrater: {}}}]", "configuration", "orchestrater"),
        (
            "applications: [{args: {verifier: {service: {model: /nowhere}}}}]",
            "configuration",
            "verifier.service.model",
        ),
        (
            "http_options: {port: FREE}\napplications: "
            "[{args: {verifier: {service: {model: models/embedded/target, threads: 60}}}}]",
            "threads",
            "60",
        ),
        ("http_options: {port: 1, host: 203.0.113.1}\napplications: [{}]", "port", "203.0.113.1"),
    ],
)
def test_a_configurations_fault_is_named(tmp_path: Path, text: str, name: str, told: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text.replace("FREE", str(free_port())))
    [finding] = [each for each in examine(file) if each.name != "no_kernels"]
    assert finding.name == name and told in finding.what


def test_a_findings_report_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    from foredraft_cli.doctor.command import app

    with pytest.raises(SystemExit) as ended:
        app([f"http://127.0.0.1:{free_port()}", "--json"])
    assert ended.value.code == 1
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["name"] == "no_server" and "foredraft serve" in finding["change"]
