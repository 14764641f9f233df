"""Targets that are not ours, over HTTP: each with a tokenizer, ends and a name of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import ray

from deployments.config import ServeFile
from deployments.serve.cluster import RunningCluster, running
from deployments.serve.platform.local_ray import started_here
from tests.support.checkpoints import KINDS, MAX_LEN, Checkpoint, write_drafter, write_target
from tests.support.cluster import free_port, post

PROMPT = "def mean(values):\n    return"


@dataclass(frozen=True)
class Served:
    """A checkpoint beside the embedded pair, on its Ray."""

    made: Checkpoint
    cluster: RunningCluster


def configuration(kind: str, target: Path, drafter: Path, **fields: Any) -> ServeFile:
    args = {
        "orchestrator": {
            "proposal": "tree",
            "ngram": {"enabled": True},
            "adl": {"name": "fixed", "k": 6},
            "verifier_led_rounds": 4,
        },
        "drafter": {"service": {"model": str(drafter), "dtype": "float32", "max_mask_slots": 8}},
        "verifier": {"service": {"model": str(target), "kv_tokens": 4096}},
        "ingress": {"direct": {"port": free_port()}},
    }
    entry = {
        "name": kind,
        "route_prefix": f"/{kind}",
        "import_path": "deployments.app:build",
        "args": args | fields,
    }
    values = {"proxy_location": "Disabled", "applications": [entry]}
    return ServeFile.model_validate(values)


@pytest.fixture(scope="module", params=KINDS)
def served(
    request: pytest.FixtureRequest,
    cluster: RunningCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    made = write_target(folder / f"Tiny-{kind}", kind)
    drafter = write_drafter(folder / "drafter", made)
    with running(configuration(kind, made.folder, drafter)) as started:
        yield Served(made, started)


async def choice(served: Served, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the only choice of a request for PROMPT, and the report."""
    asked = {"prompt": PROMPT, "temperature": 0, "return_token_ids": True} | body
    status, answer = await post(served.cluster, asked)
    assert status == 200, answer
    [found] = answer["choices"]
    return found, answer["metrics"]["speculative_decoding"]


async def test_it_has_its_own_name_and_its_numerics_are_measured(served: Served) -> None:
    url = served.cluster.url
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/v1/models") as answer:
            [model] = (await answer.json())["data"]
        async with http.get(f"{url}/health") as answer:
            health = await answer.json()
    assert model["id"] == served.made.folder.name
    numerics = health["verifier"]["numerics"]
    assert numerics == "exact" or numerics.startswith("tolerance ")
    assert health["drafter"]["refused"] is None
    assert served.cluster.refusal is None


@pytest.mark.parametrize("enabled", [True, False])
async def test_each_of_its_ends_ends_a_text(served: Served, enabled: bool) -> None:
    """Forced by a bias, which drafts do not know of."""
    for end in served.made.ends:
        body = {
            "max_tokens": 20,
            "logit_bias": {str(end): 100},
            "speculative": {"enabled": enabled},
        }
        ended, _ = await choice(served, body | {"min_tokens": 5})
        assert len(ended["token_ids"]) == 6
        assert ended["token_ids"][-1] == end
        assert ended["finish_reason"] == "stop"
        assert ended["text"] == served.made.tokenizer.decode(ended["token_ids"][:-1])
        ignored, _ = await choice(served, body | {"ignore_eos": True})
        assert ignored["token_ids"] == [end] * 20
        assert ignored["finish_reason"] == "length"


@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_it_decodes_alike_with_drafts_and_without(served: Served, temperature: float) -> None:
    drafted = 0
    # Whether or not drafts pay: a random target seldom agrees with its drafter.
    always = {"adl": {"name": "fixed", "k": 8}}
    for speculative in (
        always,
        always | {"proposal": "coupled", "ngram": {"enabled": False}},
        # Copies are verified whole, whatever rows cost.
        always | {"proposal": "lookup", "ngram": {"enabled": False}},
    ):
        body = {"max_tokens": 100, "temperature": temperature, "seed": 7}
        plain, _ = await choice(served, body | {"speculative": {"enabled": False}})
        fast, report = await choice(served, body | {"speculative": speculative})
        assert report["drafter_refusal"] is None
        drafted += report["num_draft_tokens"]
        if served.cluster.health["verifier"]["numerics"] == "exact":
            assert fast["token_ids"] == plain["token_ids"]
            assert fast["text"] == plain["text"]
    # What of it is bought depends on what rows cost here, and a random target seldom agrees.
    assert drafted > 0


async def test_a_stream_adds_up_to_the_whole_text(served: Served) -> None:
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0.8, "seed": 3}
    _, whole = await post(served.cluster, body)
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{served.cluster.url}/v1/completions", json=body | {"stream": True}) as answer,
    ):
        lines = [line async for line in answer.content if line.strip()]
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == whole["choices"][0]["text"]


async def test_what_does_not_fit_it_is_refused_by_its_own_bounds(served: Served) -> None:
    for change in ({"prompt": "a" * 100 * MAX_LEN}, {"prompt": "a " * MAX_LEN}):
        status, body = await post(served.cluster, {"prompt": PROMPT, "max_tokens": 4} | change)
        assert status == 400, body


async def test_the_embedded_pair_beside_it_goes_on(served: Served, cluster: RunningCluster) -> None:
    status, body = await post(cluster, {"prompt": PROMPT, "max_tokens": 4})
    assert (status, body["model"]) == (200, "foredraft-embedded")


def test_this_process_started_its_ray(cluster: RunningCluster) -> None:
    assert ray.is_initialized()
    assert started_here()


async def test_a_drafter_of_another_tokenizer_is_said_at_the_start_and_in_health(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    made = write_target(tmp_path / "target", "llama")
    foreign = write_drafter(tmp_path / "drafter", write_target(tmp_path / "other", "qwen2"))
    file = configuration("refused", made.folder, foreign)
    with running(file) as started:
        assert started.refusal is not None
        assert "another tokenizer" in started.refusal
        served = Served(made, started)
        body = {"max_tokens": 40}
        found, report = await choice(served, body)
        plain, _ = await choice(served, body | {"speculative": {"enabled": False}})
        assert report["drafter_refusal"] == started.refusal
        if started.health["verifier"]["numerics"] == "exact":
            assert found["token_ids"] == plain["token_ids"]
