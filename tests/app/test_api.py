"""The OpenAI surface: formats, errors that name the field, stop strings, health."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
import ray

from deployments.observability.metrics import INGRESS, SERVICES, Kind
from deployments.serve.cluster import RunningCluster
from tests.support.cluster import post
from tests.support.waiting import eventually

PROMPT = "def area(width, height):\n"
# Metrics of what may not have happened yet.
SELDOM = {
    "prompt_tokens_cached_total",
    "verifier_moves_total",
    "drafter_refusals_total",
    "prefix_cache_hits_total",
    "num_preemptions_total",
    "corrupted_rounds_total",
    "drafter_evictions_total",
    "drafter_blocks_ahead_total",
    "drafter_ahead_dropped_total",
    "spec_decode_num_ngram_drafts_total",
    # Plain rounds have them, where the text repeats itself; here there may be none.
    "verifier_own_bought_tokens_total",
    "verifier_own_kept_tokens_total",
    # Without a canary there are none.
    "canary_share",
    "canary_outcome",
    "canary_sessions",
    "canary_accepted_per_round",
    "canary_tokens_per_second",
}


async def test_completion_has_the_openai_shape(cluster: RunningCluster) -> None:
    status, body = await post(cluster, {"prompt": PROMPT, "max_tokens": 8, "temperature": 0})
    assert status == 200
    assert body["object"] == "text_completion"
    [choice] = body["choices"]
    assert choice["finish_reason"] in ("stop", "length")
    usage = body["usage"]
    assert usage["completion_tokens"] <= 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_stream_adds_up_to_the_whole_answer(cluster: RunningCluster) -> None:
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0.8, "seed": 5}
    _, whole = await post(cluster, body)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{cluster.url}/v1/completions", json=body | options) as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in answer.content if line.strip()]
    assert lines[-1] == b"data: [DONE]\n"
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
    assert len({(c["id"], c["created"]) for c in chunks}) == 1
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    text = "".join(c["choices"][0]["text"] for c in chunks[:-1])
    assert text == whole["choices"][0]["text"]
    reasons = [c["choices"][0]["finish_reason"] for c in chunks[:-1]]
    assert reasons[-1] == whole["choices"][0]["finish_reason"]
    assert set(reasons[:-1]) <= {None}


async def test_token_ids_are_a_prompt_too(cluster: RunningCluster) -> None:
    body = {"prompt": [10, 20, 30], "max_tokens": 4, "return_token_ids": True}
    status, answer = await post(cluster, body)
    assert status == 200
    assert answer["usage"]["prompt_tokens"] == 3
    assert len(answer["choices"][0]["token_ids"]) == answer["usage"]["completion_tokens"]


@pytest.mark.parametrize("enabled", [True, False])
async def test_stop_string_cuts_the_text(cluster: RunningCluster, enabled: bool) -> None:
    body = {"prompt": PROMPT, "max_tokens": 64, "temperature": 0}
    _, free = await post(cluster, body)
    text = free["choices"][0]["text"]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    status, cut = await post(cluster, body | {"stop": stop, "speculative": {"enabled": enabled}})
    assert status == 200
    assert cut["choices"][0]["text"] == text[: text.find(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        (
            {"max_tokens": 0, "echo": True, "stream_options": {"include_usage": True}},
            "stream_options",
        ),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"seed": 1 << 70}, "seed"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 17}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_tokens": 5}, "min_tokens"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [99999]}, "allowed_token_ids"),
        ({"allowed_token_ids": [7], "stop_token_ids": [7], "min_tokens": 1}, "min_tokens"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "(("}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"type": "nothing"}}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "min_tokens": 2}, "min_tokens"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1 << 40]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": ["a"] * 5, "n": 16}, "prompt"),
        ({"stop": [""]}, "stop"),
        ({"cache_salt": "\n"}, "cache_salt"),
        ({"cache_salt": "x" * 300}, "cache_salt"),
        ({"stop": ["x"] * 99}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"speculative": {"enable": True}}, "speculative.enable"),
        ({"max_tokens": 1 << 20}, "max_tokens"),
    ],
)
async def test_bad_input_is_a_400_that_names_the_field(
    cluster: RunningCluster, change: dict[str, Any], param: str
) -> None:
    status, body = await post(cluster, {"prompt": PROMPT, "max_tokens": 4} | change)
    assert status == 400, body
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["param"].split(".")[0] == param.split(".")[0]


async def test_other_failures_have_the_same_body(cluster: RunningCluster) -> None:
    for body, code in ((b"{", 400), ({"prompt": PROMPT, "model": "nobody"}, 404)):
        status, answer = await post(cluster, body)
        assert status == code
        assert set(answer["error"]) == {"message", "type", "param", "code"}
    async with aiohttp.ClientSession() as http, http.get(f"{cluster.url}/v2/nothing") as missing:
        assert missing.status == 404
        assert "error" in await missing.json()


async def test_models_and_health(cluster: RunningCluster) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{cluster.url}/v1/models") as answer:
            [model] = (await answer.json())["data"]
        async with http.get(f"{cluster.url}/v1/models/{model['id']}") as answer:
            assert (await answer.json())["id"] == model["id"]
        async with http.get(f"{cluster.url}/health") as answer:
            assert answer.status == 200
            assert (await answer.json())["verifier"]["numerics"]


async def test_a_refused_drafter_is_told_of_and_counted(cluster: RunningCluster) -> None:
    # The cluster's drafter is the compiled one, which denoises in one pass. A short request may
    # end before the drafter has answered.
    options = {"speculative": {"draft": {"steps": 2}}, "ignore_eos": True}
    body = {"prompt": PROMPT, "max_tokens": 128} | options
    _, answer = await post(cluster, body)
    refusal = answer["metrics"]["speculative_decoding"]["drafter_refusal"]
    assert refusal.startswith("params.steps must be 1")
    assert answer["usage"]["completion_tokens"] == 128

    async def counted() -> bool:
        return "foredraft_drafter_refusals_total{" in await exported()

    # Ray's replicas report every few seconds.
    await eventually(counted, every_s=1)


async def exported() -> str:
    """Return what Prometheus would read of this node."""
    port = ray.nodes()[0]["MetricsExportPort"]
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}/metrics") as found,
    ):
        return await found.text()


async def test_a_drafted_request_is_in_the_metrics_of_all_three_parts(
    cluster: RunningCluster,
) -> None:
    _, answer = await post(cluster, {"prompt": PROMPT, "max_tokens": 64, "temperature": 0})
    assert answer["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0
    wanted = [
        f"{metric.name}{'_bucket' if metric.kind is Kind.HISTOGRAM else ''}{{"
        for metrics in (
            INGRESS,
            SERVICES["drafter_service"].values(),
            SERVICES["verifier_service"].values(),
        )
        for metric in metrics
        # A counter appears with its first event.
        if metric.name.removeprefix("foredraft_") not in SELDOM
    ]

    async def counted() -> bool:
        found = await exported()
        return 'reason="drafts"' in found and all(name in found for name in wanted)

    await eventually(counted, every_s=1)
