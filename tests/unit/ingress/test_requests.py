"""What becomes of single fields of requests, and of requests that are none."""

from __future__ import annotations

import aiohttp
import pytest

from foredraft.errors import InvalidRequest
from tests.support.orchestrator.peers import ScriptedVerifier
from tests.unit.ingress.test_routes import PROMPT, TOKENIZER, generations, post, served


@pytest.mark.parametrize(
    ("data", "sent_as", "status", "param"),
    [
        (b'{"prompt": [1]}', "", 415, None),
        (b'{"prompt": [1]}', "text/plain", 415, None),
        (b"\xff\xfe{", "application/json", 400, None),
        (b"[" * 50_000, "application/json", 400, None),
        (b'{"prompt": null}', "application/json", 400, "prompt"),
        (b'{"prompt": [1], "logit_bias": {"x": 1}}', "application/json", 400, "logit_bias.x"),
        (b'{"prompt": {"a": 1}}', "application/json", 400, "prompt"),
    ],
)
async def test_what_is_no_request_is_the_clients_fault_and_named(
    data: bytes, sent_as: str, status: int, param: str | None
) -> None:
    async with (
        served(generations(ScriptedVerifier())) as url,
        aiohttp.ClientSession() as http,
        http.post(url, data=data, headers={"content-type": sent_as}) as answer,
    ):
        error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (status, status)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


async def test_a_prompt_of_too_many_tokens_is_refused_before_the_next_one_is_read() -> None:
    verifier = ScriptedVerifier()
    made = generations(verifier)
    asked = {"prompt": ["a b " * 3000] * 60, "max_tokens": 2}
    async with served(made) as url:
        status, body = await post(url, asked)
    assert (status, body["error"]["param"]) == (400, "prompt")
    assert "the model takes at most 4095" in body["error"]["message"]
    assert not verifier.opens


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_verifier_refuses_names_the_clients_own_field(stream: bool) -> None:
    verifier = ScriptedVerifier()
    refusals = iter(("grammar", "grammar", "max_new_tokens"))

    async def refuse(_: int) -> None:
        param = next(refusals)
        raise InvalidRequest(f"{param}: no text follows it", param=param)

    verifier.opening = refuse
    body = {"prompt": PROMPT, "stream": stream}
    fields = (
        ("structured_outputs", {"structured_outputs": {"regex": "a"}}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("max_tokens", {"max_tokens": 9}),
    )
    async with served(generations(verifier)) as url:
        for field, extra in fields:
            status, found = await post(url, body | extra)
            assert (status, found["error"]["param"]) == (400, field)
            assert found["error"]["message"] == f"{field}: no text follows it"


async def test_a_temperature_too_small_to_divide_by_is_0() -> None:
    verifier = ScriptedVerifier()
    async with served(generations(verifier)) as url:
        for temperature in (1e-320, 9e-6, 1e-5):
            body = {"prompt": PROMPT, "max_tokens": 2, "temperature": temperature}
            assert (await post(url, body))[0] == 200
    assert [each.sampling.temperature for each in verifier.opens] == [0.0, 0.0, 1e-5]


async def test_a_prompt_alone_is_scored_without_a_token_behind_it() -> None:
    """As harnesses do that compare the logprobs of given answers."""
    verifier = ScriptedVerifier()
    asked = {"prompt": PROMPT, "max_tokens": 0, "return_token_ids": True}
    async with served(generations(verifier)) as url:
        status, refused = await post(url, asked)
        assert (status, refused["error"]["param"]) == (400, "max_tokens")
        status, body = await post(url, asked | {"echo": True})
    assert status == 200, body
    [choice] = body["choices"]
    prompt = TOKENIZER.decode(PROMPT, skip_special_tokens=False)
    assert (choice["text"], choice["finish_reason"]) == (prompt, "length")
    assert choice["token_ids"] == [] and body["usage"]["completion_tokens"] == 0


async def test_counts_of_cached_tokens_are_for_who_shares_a_salt() -> None:
    verifier = ScriptedVerifier()
    body = {"prompt": PROMPT, "max_tokens": 2}
    async with served(generations(verifier)) as url:
        counts = []
        for salt in (None, "mine"):
            verifier.cached_tokens = 3
            _, found = await post(url, body | {"cache_salt": salt})
            counts.append(found["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert counts == [0, 3]


async def test_the_histogram_of_accepted_drafts_is_a_list_of_counts() -> None:
    async with served(generations(ScriptedVerifier())) as url:
        _, body = await post(url, {"prompt": PROMPT, "max_tokens": 30})
    report = body["metrics"]["speculative_decoding"]
    counts = report["acceptance_histogram"]
    assert sum(counts) == report["num_spec_steps"]
    assert sum(n * count for n, count in enumerate(counts)) == report["num_accepted_draft_tokens"]
