"""HTTP bodies of all kinds: an answer or an error of the one shape, never a 500, and in time."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.openai.routes import application, handlers
from tests.support.examples import examples
from tests.support.http import listening
from tests.support.orchestrator.peers import ScriptedVerifier
from tests.unit.ingress.test_routes import PROMPT, TOKENIZER_FILE, generations

_WITHIN_S = 5.0
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "text", "json_object", "auto", "a" * 300]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_SMALL: st.SearchStrategy[Any] = (
    st.integers(-1, 20) | st.floats(-1, 3) | st.sampled_from([True, None, "x", [], {}])
)
_STRUCTURED = st.sampled_from(
    [
        {"structured_outputs": {"regex": "(a{1000}){1000}"}},
        {"structured_outputs": {"grammar": "start: start"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}},
        {"stream": True, "stream_options": {"resumable": True, "cadence": "token"}},
        {"stream": True, "n": 4, "speculative": {"rounds": True, "detail": True}},
    ]
)
_ROUTES = {
    "/v1/completions": (list(CompletionRequest.model_fields), {"prompt": PROMPT, "max_tokens": 3}),
    "/v1/chat/completions": (
        list(ChatRequest.model_fields),
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3},
    ),
    "/tokenize": (["prompt", "messages", "add_special_tokens"], {"prompt": "a"}),
    "/detokenize": (["tokens"], {"tokens": [1]}),
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A route and a body: a good one with some fields of any value, any JSON, or any bytes."""
    route = draw(st.sampled_from(sorted(_ROUTES)))
    fields, good = _ROUTES[route]
    changes = st.dictionaries(st.sampled_from(fields), _SMALL | _JSON, max_size=3)
    body: Any = good | draw(st.just({}) | _STRUCTURED) | draw(changes)
    if draw(st.integers(0, 9)) == 0:
        body = draw(_JSON)
    data = json.dumps(body).encode()
    return route, draw(st.binary(max_size=40)) if draw(st.integers(0, 9)) == 0 else data


def test_no_body_is_a_servers_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    verifier = ScriptedVerifier()

    async def health() -> dict[str, Any]:
        return {}

    with asyncio.Runner() as runner:
        app = application(handlers(generations(verifier), TOKENIZER_FILE), health)
        server = listening(app)
        url = runner.run(server.__aenter__())
        http = runner.run(_client())

        @settings(examples(300), suppress_health_check=list(HealthCheck), deadline=None)
        @given(asked=requests())
        def fuzz(asked: tuple[str, bytes]) -> None:
            runner.run(_post(http, url, *asked))

        fuzz()
        runner.run(http.close())
        runner.run(server.__aexit__(None, None, None))
    assert not verifier.live
    assert not [record for record in caplog.records if record.exc_info]


async def _client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


async def _post(http: aiohttp.ClientSession, url: str, route: str, data: bytes) -> None:
    headers = {"content-type": "application/json"}
    async with asyncio.timeout(_WITHIN_S):
        async with http.post(url + route, data=data, headers=headers) as answer:
            text = await answer.text()
    assert answer.status == 200 or 400 <= answer.status < 500, text
    if answer.status != 200:
        assert set(json.loads(text)["error"]) == {"message", "type", "param", "code"}
    elif answer.content_type == "text/event-stream":
        assert text.endswith("data: [DONE]\n\n")
