"""Streams that were cut go on with the same tokens; streams that wait are kept alive."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from deployments.ingress.stream.resume import EventId, Sent, read_id
from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import InvalidRequest
from tests.support.orchestrator.peers import ScriptedVerifier, config, continuation
from tests.unit.ingress.test_routes import PROMPT, generations, post, served

BODY: dict[str, Any] = {
    "prompt": PROMPT,
    "max_tokens": 30,
    "n": 2,
    "stream": True,
    "return_token_ids": True,
    "stream_options": {"resumable": True, "include_usage": True},
}


SAMPLED = {"acceptance": "rejection", "proposal": "sampled"}


async def events(
    url: str, body: dict[str, Any], last: str | None = None
) -> list[tuple[str | None, dict[str, Any]]]:
    """The stream's events with their ids, but for [DONE]."""
    headers = {} if last is None else {"last-event-id": last}
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=body, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()
        text = await answer.text()
    found = []
    for event in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in event.splitlines())
        if fields.get("data", "[DONE]") != "[DONE]":
            found.append((fields.get("id"), json.loads(fields["data"])))
    return found


def answers(found: list[tuple[str | None, dict[str, Any]]]) -> list[tuple[str, list[int], Any]]:
    """Each choice's text, tokens and finish reason."""
    whole: list[Any] = [["", [], None] for _ in range(2)]
    for _, body in found:
        for choice in body["choices"]:
            one = whole[choice["index"]]
            one[0] += choice["text"]
            one[1] += choice["token_ids"]
            one[2] = choice["finish_reason"] or one[2]
    return [tuple(one) for one in whole]


@pytest.mark.parametrize("cadence", ["block", "token"])
async def test_a_stream_goes_on_after_any_of_its_events(cadence: str) -> None:
    body = BODY | {"stream_options": BODY["stream_options"] | {"cadence": cadence}}
    made = generations(ScriptedVerifier())
    made.config = config(stream_interval_ms=0)
    async with served(made) as url:
        whole = await events(url, body)
        assert len(whole) > 3
        assert answers(whole)[0][1] == list(continuation(PROMPT, 30))
        # The usage comes last, and has no id: nothing can be lost behind it.
        assert whole[-1][0] is None and all(id_ for id_, _ in whole[:-1])
        for cut in range(1, len(whole)):
            rest = await events(url, body, whole[cut - 1][0])
            assert answers(whole[:cut] + rest) == answers(whole)
            assert rest[-1][1]["usage"] == whole[-1][1]["usage"]


async def test_an_id_of_another_request_is_refused_and_other_tokens_are_noticed() -> None:
    async with served(generations(ScriptedVerifier())) as url:
        whole = await events(url, BODY)
        last = whole[0][0]
        assert last is not None
        cases: list[tuple[dict[str, Any], str, str]] = [
            ({}, "nonsense", "Last-Event-ID"),
            ({"n": 1}, last, "Last-Event-ID"),
            ({"seed": 5}, last, "seed"),
            ({"prompt": [1, 2]}, last, "Last-Event-ID"),
            ({"stream_options": None}, last, "stream_options"),
            (
                {"speculative": {"acceptance": "rejection", "proposal": "sampled"}},
                last,
                "stream_options",
            ),
        ]
        for change, id_, param in cases:
            async with (
                aiohttp.ClientSession() as http,
                http.post(url, json=BODY | change, headers={"last-event-id": id_}) as answer,
            ):
                text = await answer.text()
                error = json.loads(text.removeprefix("data: ").partition("\n\n")[0])["error"]
                assert (error["code"], error["param"]) == (400, param), change


def test_an_id_is_what_it_says() -> None:
    made = EventId((1 << 64) - 1, (Sent(), Sent().after([1, 2, 3])))
    assert made.sent[1] == (3, hash_prefix([1, 2, 3]))
    assert read_id(str(made), 2) == made
    for text in ("", "1", "-1-0.0", f"{1 << 64}-{str(made).partition('-')[2]}", "1-" * 9999):
        with pytest.raises(InvalidRequest):
            read_id(text, 2)


async def test_a_stream_that_waits_for_a_verifier_sends_comments() -> None:
    verifier = ScriptedVerifier()
    go_on = asyncio.Event()

    async def before(index: int) -> None:
        if index == 0:
            await go_on.wait()

    verifier.before = before
    made = generations(verifier)
    made.config = config(keepalive_s=0.01)
    body = {"prompt": PROMPT, "max_tokens": 9, "stream": True, "return_token_ids": True}
    async with (
        served(made) as url,
        aiohttp.ClientSession() as http,
        http.post(url, json=body) as answer,
    ):
        assert answer.status == 200
        for _ in range(3):
            assert await answer.content.readuntil(b"\n\n") == b": waiting\n\n"
        go_on.set()
        text = (await answer.content.read()).decode()
    lines = [line for line in text.splitlines() if line.startswith("data: {")]
    tokens = [t for line in lines for t in json.loads(line[6:])["choices"][0]["token_ids"]]
    assert tokens == list(continuation(PROMPT, 9))


async def test_a_whole_answer_is_the_same_however_long_it_waits() -> None:
    verifier = ScriptedVerifier()

    async def before(_: int) -> None:
        await asyncio.sleep(0.002)

    verifier.before = before
    made = generations(verifier)
    made.config = config(keepalive_s=0.001)
    asked = {"prompt": PROMPT, "max_tokens": 9, "return_token_ids": True}
    async with served(made) as url:
        status, body = await post(url, asked)
    assert status == 200
    assert body["choices"][0]["token_ids"] == list(continuation(PROMPT, 9))
