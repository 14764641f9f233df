"""Several answers of one request where there is no room for all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest

from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.install import install
from deployments.ingress.doors.keys import Key
from deployments.ingress.openai.routes import application, handlers
from deployments.ingress.stream.turns import Turns
from foredraft.errors import DeadlineExceeded, Overloaded
from tests.support.http import listening
from tests.support.orchestrator.peers import ScriptedVerifier, config, continuation
from tests.unit.ingress.test_doors import bearer, digest_of
from tests.unit.ingress.test_routes import PROMPT, TOKENIZER_FILE, generations, post, served


class Room:
    """A verifier with so many places, which notes the most that were taken at once."""

    def __init__(self, verifier: ScriptedVerifier, places: int) -> None:
        self.verifier, self.places, self.most = verifier, places, 0
        verifier.opening = self.check

    async def check(self, _: int) -> None:
        if len(self.verifier.live) >= self.places:
            raise Overloaded("no room")
        self.most = max(self.most, len(self.verifier.live) + 1)


async def test_answers_that_find_no_room_wait_for_the_others() -> None:
    verifier = ScriptedVerifier()
    room = Room(verifier, 2)
    asked = {"prompt": PROMPT, "max_tokens": 9, "n": 7, "return_token_ids": True}
    async with served(generations(verifier)) as url:
        status, body = await post(url, asked)
    assert status == 200, body
    assert [each["token_ids"] for each in body["choices"]] == [list(continuation(PROMPT, 9))] * 7
    assert room.most == 2 and not verifier.live


async def test_a_request_that_finds_no_room_at_all_is_refused_with_a_time_to_come_back() -> None:
    verifier = ScriptedVerifier()
    Room(verifier, 0)
    asked = {"prompt": PROMPT, "max_tokens": 9, "n": 3}
    async with (
        served(generations(verifier)) as url,
        aiohttp.ClientSession() as http,
        http.post(url, json=asked) as answer,
    ):
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert (await answer.json())["error"]["message"] == "no room"
    assert not verifier.live


async def test_the_first_answer_waits_for_other_requests_and_the_others_follow_it() -> None:
    verifier = ScriptedVerifier()
    room, together = Room(verifier, 0), list[int]()

    async def slow(_: int) -> None:
        await asyncio.sleep(0.01)
        together.append(len(verifier.live))

    verifier.before = slow
    made = generations(verifier)
    made.config = config(admission_wait_s=5.0)
    asked = {"prompt": PROMPT, "max_tokens": 60, "n": 3}
    async with served(made) as url:
        answer = asyncio.create_task(post(url, asked))
        await asyncio.sleep(0.05)
        assert not answer.done() and not together
        room.places = 3
        status, _ = await answer
    assert (status, max(together)) == (200, 3)


async def test_what_waits_ends_with_the_requests_one_deadline() -> None:
    never = asyncio.Event()

    async def forever(within_s: float, may_wait: bool) -> AsyncGenerator[int]:
        yield 1
        await never.wait()

    async def refused(within_s: float, may_wait: bool) -> AsyncGenerator[int]:
        raise Overloaded("no room")
        yield 1

    turns = Turns(0.05)
    first = turns.events(forever)
    assert await anext(first) == 1
    with pytest.raises(DeadlineExceeded, match=r"within 0\.05 s"):
        await anext(turns.events(refused))
    await first.aclose()


async def test_every_request_has_a_deadline() -> None:
    verifier = ScriptedVerifier()
    never = asyncio.Event()

    async def before(_: int) -> None:
        await never.wait()

    verifier.before = before
    made = generations(verifier)
    made.config = config(request_timeout_s=0.05)
    async with served(made) as url:
        status, body = await post(url, {"prompt": PROMPT, "max_tokens": 9})
    assert (status, body["error"]["type"]) == (504, "timeout_error")
    assert not verifier.live


async def test_keys_share_no_kv_and_count_for_their_tenant() -> None:
    verifier = ScriptedVerifier()

    async def health() -> dict[str, Any]:
        return {}

    app = application(handlers(generations(verifier), TOKENIZER_FILE), health)
    keys = [Key(name=name, sha256=digest_of(name)) for name in ("a", "b")]
    install(app, Admission(keys, lambda: 0.0), ())
    async with listening(app) as url, aiohttp.ClientSession(url) as http:
        for name, salt in (("a", None), ("a", None), ("a", "x"), ("b", None), ("b", "x")):
            body = {"prompt": PROMPT, "max_tokens": 2, "cache_salt": salt}
            async with http.post("/v1/completions", json=body, headers=bearer(name)) as answer:
                assert answer.status == 200
    salts = [open_.cache_salt for open_ in verifier.opens]
    assert salts[0] == salts[1] and len(set(salts)) == 4 and all(salts)
    assert not any("a\0" in salt or "x" in salt for salt in salts)
    groups = [open_.groups for open_ in verifier.opens]
    assert len({request for request, _ in groups}) == 5
    assert groups[0][1] == groups[1][1] == groups[2][1] != groups[3][1] == groups[4][1]
