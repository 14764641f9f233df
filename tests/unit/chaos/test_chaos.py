"""The chaos run's own parts: what it does to processes, what it counts, what its clients see."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from deployments.serve.processes import replicas
from foredraft_cli.chaos import bodies
from foredraft_cli.chaos.faults import Faults
from foredraft_cli.chaos.load import Load
from foredraft_cli.chaos.tally import Tally
from tests.support.orchestrator.peers import ScriptedVerifier
from tests.support.waiting import DEADLINE_S
from tests.unit.ingress.test_routes import PROMPT, generations, served


async def test_every_fault_is_done_and_what_is_stopped_goes_on_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    pids = {"drafter": [1, 2], "verifier": [3], "ingress": [4]}
    faults = Faults(pids.__getitem__, Random(5), lambda: now)
    await faults.run(600.0, sleep)
    kinds = set(faults.counts())
    services = {f"{kind} {it}" for kind in ("kill", "stop", "end", "slow") for it in pids}
    assert kinds == services - {"stop ingress", "end ingress", "slow ingress"}
    for pid in (1, 2, 3):
        own = [number for each, number in sent if each == pid]
        states = [n for n in own if n in (signal.SIGSTOP, signal.SIGCONT)]
        assert states[-1] is signal.SIGCONT
    first = faults.log[0]
    assert faults.felt(first.began, first.began) == {first.service}
    assert not faults.felt(-2.0, first.began - 0.1)


def test_failures_are_blamed_on_whom_they_may_be_due_to() -> None:
    tally = Tally()
    tally.failed("cut", {"drafter"})
    tally.failed("503", {"drafter", "verifier"})
    tally.failed("503", set())
    assert tally.failed_by_drafter == 1
    assert +tally.other_failures == {"503 (drafter+verifier)": 1, "503 (no fault)": 1}
    tally.answered({}, [[1]], [[1]])
    tally.answered({}, [[1]], [[2]])
    assert (tally.compared, tally.identical, len(tally.differences)) == (2, 1, 1)


def test_only_processes_of_our_own_cluster_are_touched() -> None:
    title = "ray::ServeReplica:foredraft:verifier#1"
    sleep = shutil.which("sleep")
    assert sleep is not None
    with subprocess.Popen([title, "60"], executable=sleep) as ours:
        try:
            # A new process has no command line for a moment.
            while not Path(f"/proc/{ours.pid}/cmdline").read_bytes():
                time.sleep(0.001)
            assert replicas("verifier") == [ours.pid]
            assert not replicas("drafter") and not replicas("verifier", "other")
        finally:
            ours.kill()
    assert ours.pid not in replicas("verifier")


def known() -> list[dict[str, Any]]:
    return [
        {"prompt": PROMPT, "max_tokens": 12, "seed": 3, "return_token_ids": True},
        {"prompt": PROMPT, "max_tokens": 9, "n": 2, "seed": 4, "return_token_ids": True},
    ]


async def test_clients_of_all_kinds_find_what_plain_decoding_says() -> None:
    tally = Tally()
    async with served(generations(ScriptedVerifier())) as url:
        load = Load(url.removesuffix("/v1/completions"), known(), lambda *_: set(), tally)
        await load.learn()
        random = Random(3)
        async with asyncio.timeout(DEADLINE_S):
            while not (tally.compared > 5 and tally.cancelled and tally.bombs):
                await load.run(time.monotonic() + 0.5, random)
    assert tally.identical == tally.compared
    assert not tally.failed_by_drafter and not tally.other_failures


async def test_another_text_is_noticed_and_a_cut_stream_goes_on() -> None:
    """Against a server of a few lines that cuts every stream once, and lies in whole answers."""

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        tokens = list(range(body["max_tokens"]))
        if not body.get("stream"):
            lie = "speculative" not in body
            return web.json_response({"choices": [{"token_ids": [9] if lie else tokens}]})
        answer = web.StreamResponse()
        await answer.prepare(request)
        at = int(request.headers.get("last-event-id", "0"))
        for token in tokens[at:]:
            event = {"choices": [{"index": 0, "token_ids": [token]}]}
            await answer.write(f"id: {token + 1}\ndata: {json.dumps(event)}\n\n".encode())
            if at == 0 and token == 4:
                return answer
        await answer.write(b"data: [DONE]\n\n")
        return answer

    application = web.Application()
    application.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    tally = Tally()
    load = Load(f"http://{host}:{port}", known()[:1], lambda *_: {"ingress"}, tally)
    await load.learn()

    async def ways(way: str) -> None:
        random = Random(1)
        random.choices = lambda *_, **__: [way]
        await load.run(time.monotonic() + 0.05, random)

    try:
        await ways("resumed")
        resumed = tally.compared
        assert resumed and tally.identical == resumed and tally.resumed >= resumed
        await ways("whole")
        assert tally.compared > resumed and tally.identical == resumed
    finally:
        await runner.cleanup()


def test_bombs_are_of_all_kinds_and_good_requests_have_seeds() -> None:
    made = bodies.good(["a"] * 12)
    assert len({body["seed"] for body in made}) == 12
    assert all(bodies.plain(body)["speculative"] == {"enabled": False} for body in made)
    random = Random(0)
    assert len({str(bodies.bomb(random)) for _ in range(200)}) == 8
