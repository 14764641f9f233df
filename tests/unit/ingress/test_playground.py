"""The playground's routes, and the rounds that it is told of."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI

from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.install import install as doors
from deployments.ingress.doors.keys import Key
from deployments.ingress.playground.config import PlaygroundConfig
from deployments.ingress.playground.routes import install
from tests.support.http import listening
from tests.support.orchestrator.peers import ScriptedVerifier, continuation
from tests.unit.ingress.test_doors import bearer, made
from tests.unit.ingress.test_routes import PROMPT, generations, post, served

KILLED = "killed"


def app(config: PlaygroundConfig, killed: list[str]) -> FastAPI:
    async def kill() -> None:
        killed.append(KILLED)

    found = made()
    install(found, config, True, False, kill)
    return found


async def test_the_page_allows_itself_nothing_from_elsewhere() -> None:
    async with (
        listening(app(PlaygroundConfig(), [])) as url,
        aiohttp.ClientSession() as http,
        http.get(url) as page,
    ):
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy and "http" not in policy
        text = await page.text()
        # Not one address, style or script in the page itself.
        assert not any(mark in text for mark in ("http:", "https:", "style=", "onclick", "<style"))
        for part in ("main.js", "style.css", "icon.svg"):
            async with http.get(f"{url}/playground/{part}") as file:
                assert file.status == 200
                assert file.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["routes.py", "..%2froutes.py", "%2e%2e/config.py", "nothing.js"])
async def test_no_other_file_is_served(name: str) -> None:
    async with (
        listening(app(PlaygroundConfig(), [])) as url,
        aiohttp.ClientSession() as http,
        http.get(f"{url}/playground/{name}") as answer,
    ):
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == 404


async def test_what_is_not_enabled_is_not_there() -> None:
    killed: list[str] = []
    off = app(PlaygroundConfig(enabled=False, kill_drafter=True), killed)
    without_kill = app(PlaygroundConfig(), killed)
    async with listening(off) as url, aiohttp.ClientSession() as http:
        for path in ("/", "/playground/main.js", "/playground/options"):
            async with http.get(url + path) as answer:
                assert answer.status == 404
    async with listening(without_kill) as url:
        status, _ = await post(f"{url}/playground/kill-drafter", {})
        assert status == 405
    assert killed == []


async def test_only_the_own_page_may_kill() -> None:
    killed: list[str] = []
    async with (
        listening(app(PlaygroundConfig(kill_drafter=True), killed)) as url,
        aiohttp.ClientSession() as http,
    ):
        for site in ("cross-site", "same-site"):
            headers = {"sec-fetch-site": site}
            async with http.post(f"{url}/playground/kill-drafter", headers=headers) as answer:
                assert answer.status == 403
        assert killed == []
        headers = {"sec-fetch-site": "same-origin"}
        async with http.post(f"{url}/playground/kill-drafter", headers=headers) as answer:
            assert await answer.json() == {"killed": True}
    assert killed == [KILLED]


async def test_a_browser_asks_for_the_key_and_sends_it_for_its_own_page_alone() -> None:
    key = Key(name="alice", sha256=hashlib.sha256(b"fd-secret").hexdigest())
    found = app(PlaygroundConfig(), [])
    doors(found, Admission([key], lambda: 0.0), ())
    basic = "Basic " + base64.b64encode(b"anyone:fd-secret").decode()
    async with listening(found) as url, aiohttp.ClientSession(url) as http:

        async def status(path: str, **headers: str) -> tuple[int, str]:
            async with http.get(path, headers=headers) as answer:
                return answer.status, answer.headers.get("www-authenticate", "")

        assert await status("/") == (401, 'Basic realm="foredraft"')
        assert await status("/playground/main.js") == (401, "Bearer")
        assert await status("/", authorization=basic) == (200, "")
        assert await status("/v1/models", authorization=basic) == (200, "")
        foreign: dict[str, Any] = {"authorization": basic, "sec-fetch-site": "cross-site"}
        assert (await status("/v1/models", **foreign))[0] == 401
        wrong = "Basic " + base64.b64encode(b"fd-secret:").decode()
        for value in (wrong, "Basic", "Basic !", "Basic /w=="):
            assert (await status("/", authorization=value))[0] == 401
        async with http.get("/v1/models", headers=bearer("fd-secret")) as answer:
            assert answer.status == 200


async def test_rounds_add_up_to_the_answer() -> None:
    body = {
        "prompt": PROMPT,
        "max_tokens": 12,
        "temperature": 0,
        "return_token_ids": True,
        "speculative": {"rounds": True, "detail": True},
    }
    async with served(generations(ScriptedVerifier())) as url:
        status, answer = await post(url, body)
    assert status == 200
    [choice] = answer["choices"]
    rounds, report = choice["rounds"], answer["metrics"]["speculative_decoding"]
    assert [one["round"] for one in rounds] == list(range(report["num_rounds"]))
    tokens = [token for one in rounds for token in one["tokens"]]
    assert [token["id"] for token in tokens] == choice["token_ids"]
    assert tuple(choice["token_ids"]) == continuation(PROMPT, 12)
    assert [token["origin"] for token in tokens] == choice["origins"]
    assert "".join(token["text"] for token in tokens) == choice["text"]
    assert sum(len(one["draft"]["kept"]) for one in rounds) == report["num_accepted_draft_tokens"]
    assert sum(one["bought"] for one in rounds) == report["num_bought_tokens"]
    assert sum(len(one["draft"]["tokens"]) for one in rounds) == report["num_draft_tokens"]
    ends = [one["began_s"] + one["draft_wait_s"] + one["verify_s"] for one in rounds]
    assert ends == sorted(ends) and rounds[0]["began_s"] >= 0
    for one in rounds:
        draft = one["draft"]
        kept = [draft["tokens"][node] for node in draft["kept"]]
        assert kept == [token["id"] for token in one["tokens"]][: len(kept)]
        assert (one["source"] == "none") == (not draft["tokens"])
