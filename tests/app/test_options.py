"""What users combine with speculation: the same answer with it and without, by HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from deployments.config import model_path
from deployments.serve.cluster import RunningCluster
from foredraft_cli.audit import options as audit_options
from foredraft_cli.audit.server import audit
from foredraft_cli.prompts.held_out import prompts
from foredraft_cli.remote import Server
from tests.support.cluster import post

TEMPERATURES = (0.0, 0.8)
OPTIONS: dict[str, dict[str, Any]] = {
    "logprobs": {"logprobs": 3},
    "stop_token_ids": {"stop_token_ids": list(range(200, 1400, 10))},
    "min_tokens": {"min_tokens": 40, "stop": ["\n", "("]},
    "ignore_eos": {"ignore_eos": True},
    "penalties": {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.6,
        "frequency_penalty": 0.4,
        "logprobs": 0,
    },
    "logit_bias": {"logit_bias": {"200": 4, "201": -100}},
    "json_schema": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "point",
                "schema": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "name": {"type": "string"}},
                    "required": ["x", "name"],
                    "additionalProperties": False,
                },
            },
        }
    },
    "regex": {"structured_outputs": {"regex": r"(self\.[a-z_]+ = [a-z_]+\n *){2,5}"}},
    "choice": {"structured_outputs": {"choice": ["return None", "return self", "pass"]}},
    "allowed_token_ids": {"allowed_token_ids": list(range(1, 900, 3))},
}


async def answer(cluster: RunningCluster, enabled: bool, body: dict[str, Any]) -> dict[str, Any]:
    """Return the only choice."""
    asked = body | {"return_token_ids": True, "speculative": {"enabled": enabled}}
    status, whole = await post(cluster, asked)
    assert status == 200, whole
    choice: dict[str, Any] = whole["choices"][0]
    return choice


async def answers(
    cluster: RunningCluster, enabled: bool, asked: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the only choice of each, asked side by side."""
    return await asyncio.gather(*(answer(cluster, enabled, body) for body in asked))


async def test_no_pair_of_options_changes_a_token(cluster: RunningCluster) -> None:
    asked = audit_options.bodies(prompts(20), 24, 1)
    async with Server(cluster.url) as server:
        found = await audit(server, asked, 8)
    assert found.identical == found.requests >= 40 and found.drafted > 100


def bodies(temperature: float) -> list[dict[str, Any]]:
    return [
        {"prompt": prompt, "max_tokens": 64, "temperature": temperature, "seed": seed}
        for seed, prompt in enumerate(prompts(3))
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def without_options(cluster: RunningCluster) -> dict[float, list[dict[str, Any]]]:
    """The choices of all bodies at each temperature."""
    return {
        temperature: await answers(cluster, True, bodies(temperature))
        for temperature in TEMPERATURES
    }


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_speculation_changes_nothing(
    cluster: RunningCluster,
    without_options: dict[float, list[dict[str, Any]]],
    options: dict[str, Any],
    temperature: float,
) -> None:
    asked = [body | options for body in bodies(temperature)]
    plain, fast = await asyncio.gather(
        answers(cluster, False, asked), answers(cluster, True, asked)
    )
    assert fast == plain
    # An EOS is too rare to be met here.
    assert plain != without_options[temperature] or options == OPTIONS["ignore_eos"]


async def test_answers_to_one_prompt_read_it_once(cluster: RunningCluster) -> None:
    body = {"prompt": [*range(300, 450)], "max_tokens": 16, "temperature": 0.9, "seed": 5}
    before = await kv_shared(cluster)
    _, whole = await post(cluster, body | {"n": 4, "return_token_ids": True, "cache_salt": "n"})
    # Two blocks of 64 tokens.
    assert await kv_shared(cluster) - before == 3 * 128
    for number, choice in enumerate(whole["choices"]):
        alone = await answer(cluster, False, body | {"seed": 5 + number, "cache_salt": str(number)})
        assert alone["token_ids"] == choice["token_ids"]
    assert await kv_shared(cluster) - before == 3 * 128
    # One of the four read the prompt; what comes later need not.
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    asked = body | {"n": 2, "return_token_ids": True, "cache_salt": "n"}
    _, later = await post(cluster, asked)
    assert later["usage"]["prompt_tokens_details"] == {"cached_tokens": 128}
    assert (await streamed(cluster, asked))[1] == later["usage"]


async def kv_shared(cluster: RunningCluster) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{cluster.url}/health") as response:
        return int((await response.json())["verifier"]["kv_shared"])


async def test_structured_text_is_what_was_asked_for(cluster: RunningCluster) -> None:
    body = {"prompt": prompts(1)[0], "max_tokens": 200, "temperature": 0.8, "seed": 3}
    choice = await answer(cluster, True, body | OPTIONS["choice"])
    assert choice["text"] in OPTIONS["choice"]["structured_outputs"]["choice"]
    assert choice["finish_reason"] == "stop"
    regex = {"structured_outputs": {"regex": r"[a-z]{3,9}\([0-9]{1,4}\)"}}
    assert re.fullmatch(
        regex["structured_outputs"]["regex"], (await answer(cluster, True, body | regex))["text"]
    )
    point = await answer(cluster, True, body | OPTIONS["json_schema"])
    if point["finish_reason"] == "stop":
        assert json.loads(point["text"]).keys() == {"x", "name"}


async def test_penalties_make_a_text_repeat_itself_less(cluster: RunningCluster) -> None:
    body = {"prompt": prompts(1)[0], "max_tokens": 96, "temperature": 0}
    free = await answer(cluster, True, body)
    less = await answer(cluster, True, body | {"frequency_penalty": 2.0})
    assert len(set(less["token_ids"])) > len(set(free["token_ids"]))


async def test_the_shape_of_logprobs(cluster: RunningCluster) -> None:
    body = {"prompt": prompts(1)[0], "max_tokens": 12, "temperature": 0, "logprobs": 2}
    choice = await answer(cluster, True, body)
    told, ids = choice["logprobs"], choice["token_ids"]
    tokenizer = Tokenizer.from_file(model_path("models/embedded/tokenizer/tokenizer.json"))
    assert told["tokens"] == [tokenizer.decode([token]) for token in ids]
    assert "".join(told["tokens"]) == choice["text"]
    for at, (text, logprob, top) in enumerate(
        zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
    ):
        assert told["text_offset"][at] == len("".join(told["tokens"][:at]))
        # Greedy: the token is the most probable one.
        assert logprob <= 0 and max(top.values()) == top[text] == logprob


async def test_an_echoed_prompt_has_the_logprobs_of_decoding_it(cluster: RunningCluster) -> None:
    body = {"prompt": prompts(1)[0], "max_tokens": 12, "temperature": 0, "logprobs": 1}
    first = await answer(cluster, True, body)
    ids = Tokenizer.from_file(model_path("models/embedded/tokenizer/tokenizer.json")).encode(
        body["prompt"]
    )
    # Echoed, what was generated has the logprobs that it had: a prompt is read as it is decoded.
    asked = body | {"prompt": ids.ids + first["token_ids"], "echo": True, "max_tokens": 1}
    for enabled in (True, False):
        choice = await answer(cluster, enabled, asked)
        told = choice["logprobs"]
        assert told["token_logprobs"][0] is None and len(told["tokens"]) == len(ids.ids) + 13
        assert told["token_logprobs"][len(ids.ids) : -1] == first["logprobs"]["token_logprobs"]
        assert choice["text"] == "".join(told["tokens"])


async def test_a_stop_token_ends_the_text_and_is_none_of_it(cluster: RunningCluster) -> None:
    body = {"prompt": prompts(1)[0], "max_tokens": 48, "temperature": 0}
    free = await answer(cluster, True, body)
    at = 20
    stop = free["token_ids"][at]
    first = free["token_ids"].index(stop)
    cut = await answer(cluster, True, body | {"stop_token_ids": [stop]})
    assert (cut["finish_reason"], cut["token_ids"]) == ("stop", free["token_ids"][: first + 1])
    tokenizer = Tokenizer.from_file(model_path("models/embedded/tokenizer/tokenizer.json"))
    assert cut["text"] == tokenizer.decode(free["token_ids"][:first])


@pytest.mark.parametrize("stream", [True, False])
async def test_several_prompts_and_samples_are_as_one_by_one(
    cluster: RunningCluster, stream: bool
) -> None:
    asked = {"max_tokens": 24, "temperature": 0.8, "logprobs": 0, "return_token_ids": True}
    texts = prompts(2)
    alone: list[Any] = []
    for text in texts:
        for seed in (40, 41, 42):
            _, body = await post(cluster, asked | {"prompt": text, "seed": seed})
            alone.append(body["choices"][0] | {"index": len(alone)})
    together = asked | {"prompt": texts, "n": 3, "seed": 40}
    if stream:
        choices, usage = await streamed(cluster, together)
    else:
        _, body = await post(cluster, together)
        choices, usage = body["choices"], body["usage"]
        assert len(body["metrics"]["speculative_decoding"]) == 6
    assert choices == alone
    assert usage["completion_tokens"] == sum(len(c["token_ids"]) for c in alone)


async def streamed(
    cluster: RunningCluster, body: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the choices that a stream's chunks add up to, and the usage."""
    asked = body | {"stream": True, "stream_options": {"include_usage": True}}
    choices: dict[int, dict[str, Any]] = {}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{cluster.url}/v1/completions", json=asked) as answer,
    ):
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            usage = chunk.get("usage")
            for part in chunk["choices"]:
                whole = choices.setdefault(part["index"], part)
                if whole is part:
                    continue
                whole["text"] += part["text"]
                whole["token_ids"] += part["token_ids"]
                whole["finish_reason"] = part["finish_reason"]
                for key, values in (part["logprobs"] or {}).items():
                    whole["logprobs"][key] += values
    return [choices[index] for index in sorted(choices)], usage


async def test_best_of_gives_the_likeliest_of_its_seeds(cluster: RunningCluster) -> None:
    asked = {"prompt": "class Stack:\n", "max_tokens": 12, "temperature": 1.2, "seed": 5}
    means = []
    for seed in range(5, 9):
        _, one = await post(cluster, asked | {"seed": seed, "logprobs": 0})
        [choice] = one["choices"]
        told = choice["logprobs"]["token_logprobs"]
        means.append((sum(told) / len(told), choice["text"]))
    ranked = [text for _, text in sorted(means, reverse=True)]
    assert len(set(ranked)) > 1
    for enabled in (True, False):
        options = {"best_of": 4, "n": 2, "speculative": {"enabled": enabled}}
        _, found = await post(cluster, asked | options)
        assert [choice["text"] for choice in found["choices"]] == ranked[:2]
        assert [choice["logprobs"] for choice in found["choices"]] == [None, None]
        assert found["usage"]["completion_tokens"] == 4 * 12
