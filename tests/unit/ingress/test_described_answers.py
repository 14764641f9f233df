"""Answers are what the server's own description says, by jsonschema; nothing else is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from tests.support.orchestrator.peers import ScriptedVerifier
from tests.unit.ingress.chat import test_chat
from tests.unit.ingress.chat.test_chat import ASKED, CALL, TEMPLATE, TOOL, Scripted
from tests.unit.ingress.test_routes import PROMPT, generations, served

ALL = {"trace": True, "rounds": True, "detail": True}
TEXT: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 6}


class Description:
    """A server's description, and what it says of the answers to a request."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def check(self, method: str, path: str, content_type: str, body: Any) -> None:
        """Hold a body to the schema of the route's 200."""
        answers = self._found["paths"][path][method]["responses"]["200"]["content"]
        schema = answers[content_type]["schema"] | {"components": self._found["components"]}
        jsonschema.validate(body, schema)


async def description(http: aiohttp.ClientSession, url: str) -> Description:
    async with http.get(f"{url}/openapi.json") as answer:
        return Description(await answer.json())


async def events(answer: aiohttp.ClientResponse) -> list[Any]:
    lines = [line async for line in answer.content if line.startswith(b"data: {")]
    return [json.loads(line[6:]) for line in lines]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n": 2, "logprobs": 2, "echo": True, "return_token_ids": True, "speculative": ALL},
        {"speculative": {"enabled": False, "trace": True}},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_completions(more: dict[str, Any], stream: bool) -> None:
    asked = TEXT | more | {"stream": stream}
    if stream:
        asked["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    async with served(generations(ScriptedVerifier())) as url, aiohttp.ClientSession() as http:
        described = await description(http, url.removesuffix("/v1/completions"))
        async with http.post(url, json=asked) as answer:
            assert answer.status == 200
            bodies = await events(answer) if stream else [await answer.json()]
            kind = answer.content_type
    assert len(bodies) > 1 or not stream
    for body in bodies:
        described.check("post", "/v1/completions", kind, body)


@pytest.mark.parametrize("tools", [None, [TOOL]])
@pytest.mark.parametrize("stream", [False, True])
async def test_conversations(tmp_path: Path, tools: Any, stream: bool) -> None:
    asked = ASKED | {"stream": stream, "logprobs": True, "top_logprobs": 1, "tools": tools}
    made = test_chat.served(Scripted(CALL if tools else "Hello there"), tmp_path, TEMPLATE)
    async with made as url, aiohttp.ClientSession() as http:
        described = await description(http, url)
        async with http.post(f"{url}/v1/chat/completions", json=asked) as answer:
            bodies = await events(answer) if stream else [await answer.json()]
            kind = answer.content_type
    assert len(bodies) > 1 or not stream
    for body in bodies:
        # The scripted report has no fields.
        body.get("metrics", {})["speculative_decoding"] = None
        described.check("post", "/v1/chat/completions", kind, body)


async def test_the_other_routes() -> None:
    posts = {
        "/tokenize": {"prompt": "Hello", "return_token_strs": True},
        "/detokenize": {"tokens": [65, 66]},
    }
    gets = {
        "/v1/models": "/v1/models",
        "/v1/models/scripted": "/v1/models/{asked}",
        "/version": "/version",
        "/health": "/health",
        "/health/live": "/health/live",
        "/health/ready": "/health/ready",
    }
    async with served(generations(ScriptedVerifier())) as completions:
        url = completions.removesuffix("/v1/completions")
        async with aiohttp.ClientSession() as http:
            described = await description(http, url)
            for path, asked in posts.items():
                async with http.post(url + path, json=asked) as answer:
                    described.check("post", path, answer.content_type, await answer.json())
            for path, route in gets.items():
                async with http.get(url + path) as answer:
                    described.check("get", route, answer.content_type, await answer.json())


async def test_a_body_that_is_not_described_is_found() -> None:
    async with served(generations(ScriptedVerifier())) as url, aiohttp.ClientSession() as http:
        described = await description(http, url.removesuffix("/v1/completions"))
    for change in ({"tokens": "1"}, {"more": 1}):
        body = {"count": 1, "max_model_len": 9, "tokens": [1]} | change
        with pytest.raises(jsonschema.ValidationError):
            described.check("post", "/tokenize", "application/json", body)
