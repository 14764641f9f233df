"""`foredraft audit URL` finds a planted difference, and nothing where there is none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from foredraft.errors import ConfigError, Unavailable
from foredraft_cli.audit.server import audit, made, recorded
from foredraft_cli.remote import Server
from tests.support.cluster import free_port
from tests.support.http import listening
from tests.unit.test_doctor import PROMPTS, Planted

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


class Altering:
    """A server whose drafted answer to its second request has another last token."""

    def __init__(self, numerics: str, gap: float = 0.5) -> None:
        self.numerics, self.gap = numerics, gap
        self.asked: list[dict[str, Any]] = []

    @asynccontextmanager
    async def at(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"verifier": {"model": "m", "numerics": self.numerics}})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body)
        altered = body["speculative"]["enabled"] and body["seed"] == 1
        values = [-0.1, -0.2, -0.3 - altered * self.gap]
        told: dict[str, Any] = {"token_logprobs": values}
        if "messages" in body:
            told = {"content": [{"logprob": value} for value in values]}
        choice = {"token_ids": [5, 6, 7 + altered], "logprobs": told}
        report = {"speculative_decoding": {"num_accepted_draft_tokens": 2 * altered}}
        return web.json_response({"choices": [choice], "metrics": report})


async def test_a_server_that_keeps_the_promise_is_identical() -> None:
    bodies = made(PROMPTS, 16)
    async with listening(Planted().app()) as url, Server(url) as server:
        found = await audit(server, bodies, streams=4)
    assert (found.identical, found.requests, found.bugs) == (len(bodies), 2 * len(PROMPTS), ())
    assert found.tokens == 16 * len(bodies) and found.drafted > 0


@pytest.mark.parametrize("body", [{"prompt": "x", "max_tokens": 3}, CHAT], ids=["text", "chat"])
async def test_a_planted_difference_is_found(body: dict[str, Any]) -> None:
    altering = Altering("tolerance 0.1")
    async with altering.at() as url, Server(url) as server:
        found = await audit(server, [body, {**body, "stream": True}], streams=2)
    [parting] = found.bugs
    assert (found.identical, found.requests, found.drafted) == (1, 2, 2)
    assert (parting.request, parting.position, parting.plain, parting.speculative) == (1, 2, 7, 8)
    assert parting.margin == pytest.approx(0.5)
    # Each request twice: with one seed, and nothing that is shared.
    assert [one["seed"] for one in altering.asked] == [0, 1, 0, 1]
    assert len({one["cache_salt"] for one in altering.asked}) == 4
    assert not any(one["stream"] for one in altering.asked)


@pytest.mark.parametrize(("numerics", "bugs"), [("tolerance 0.6", 0), ("tolerance 0.4", 1)])
async def test_a_near_tie_is_no_bug_where_numerics_have_a_tolerance(
    numerics: str, bugs: int
) -> None:
    async with Altering(numerics).at() as url, Server(url) as server:
        found = await audit(server, [{"prompt": "x"}] * 2, streams=2)
    assert (len(found.partings), len(found.bugs)) == (1, bugs)


async def test_a_server_that_is_not_ready_or_refuses_is_no_audit() -> None:
    planted = Planted()
    planted.health = None
    async with listening(planted.app()) as url, Server(url) as server:
        with pytest.raises(Unavailable, match="Loading model"):
            await audit(server, made(PROMPTS, 4), streams=1)
    async with listening(Planted().app()) as url, Server(url) as server:
        with pytest.raises(Unavailable, match="max_tokens"):
            await audit(server, [{"prompt": "x", "max_tokens": 0}], streams=1)


def test_recorded_requests_are_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"prompt": "a"}, CHAT])) + "\n\n")
    assert recorded(file) == [{"prompt": "a"}, CHAT]
    for text in ("{", "[]", '{"model": "m"}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="requests"):
            recorded(file)
    with pytest.raises(ConfigError, match="requests"):
        recorded(tmp_path / "none")


async def test_where_numerics_are_exact_every_difference_is_a_bug() -> None:
    altering = Altering("exact")
    async with altering.at() as url, Server(url) as server:
        found = await audit(server, [{"prompt": "x"}] * 2, streams=2)
    [parting] = found.bugs
    assert parting.request == 1 and not any("logprobs" in one for one in altering.asked)
