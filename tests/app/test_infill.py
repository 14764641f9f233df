"""An any-subset target over HTTP: it fills a hole, and drafts change none of its tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from deployments.serve.cluster import RunningCluster, running
from tests.app.test_checkpoints import configuration
from tests.support.checkpoints import MAX_LEN, write_drafter, write_target
from tests.support.cluster import post

BEFORE, AFTER = "def mean(values):\n    return", " / len(values)\n"
ALWAYS = {"adl": {"name": "fixed", "k": 8}}


@pytest.fixture(scope="module")
def served(
    cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("infill")
    made = write_target(folder / "Tiny-any-subset", "llama")
    described = json.loads((made.folder / "config.json").read_text())
    mask = {"any_subset": {"mask_token_id": made.tokenizer.token_to_id("<unk>")}}
    (made.folder / "config.json").write_text(json.dumps(described | mask))
    drafter = write_drafter(folder / "drafter", made)
    with running(configuration("infill", made.folder, drafter)) as started:
        yield started


async def filled(served: RunningCluster, **fields: Any) -> tuple[list[int], str, dict[str, Any]]:
    asked = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 40, "return_token_ids": True}
    status, answer = await post(served, asked | fields)
    assert status == 200, answer
    [found] = answer["choices"]
    assert found["finish_reason"] == "length"
    return found["token_ids"], found["text"], answer


@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_a_hole_is_filled_alike_with_drafts_and_without(
    served: RunningCluster, temperature: float
) -> None:
    sampling = {"temperature": temperature, "seed": 5}
    plain = await filled(served, speculative={"enabled": False}, **sampling)
    assert len(plain[0]) == 40
    itself = await filled(served, **sampling)
    if served.health["verifier"]["numerics"] == "exact":
        assert itself[:2] == plain[:2]
    passes = [
        each[2]["metrics"]["speculative_decoding"]["num_target_passes"] for each in (plain, itself)
    ]
    assert passes[1] <= passes[0] == 40
    drafted = 0
    for speculative in (ALWAYS, ALWAYS | {"proposal": "lookup", "ngram": {"enabled": False}}):
        fast = await filled(served, speculative=speculative, **sampling)
        if served.health["verifier"]["numerics"] == "exact":
            assert fast[:2] == plain[:2]
        drafted += fast[2]["metrics"]["speculative_decoding"]["num_draft_tokens"]
    assert drafted > 0


async def test_what_comes_after_the_hole_counts(served: RunningCluster) -> None:
    one, other = [
        await filled(served, suffix=suffix, temperature=0) for suffix in (AFTER, "dog sleeps")
    ]
    assert one[0] != other[0]
    assert one[2]["usage"]["prompt_tokens"] != other[2]["usage"]["prompt_tokens"]
    # The end of the text may stay open.
    status, answer = await post(served, {"prompt": BEFORE, "max_tokens": 7, "temperature": 0})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 7)


async def test_a_stream_adds_up_to_the_whole_hole(served: RunningCluster) -> None:
    _, whole, _ = await filled(served, temperature=0.8, seed=3)
    asked = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 40, "temperature": 0.8, "seed": 3}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{served.url}/v1/completions", json=asked | {"stream": True}) as answer,
    ):
        lines = [line async for line in answer.content if line.strip()]
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
    assert len(chunks) > 1
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"]) == whole


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": MAX_LEN}, "max_tokens"),
        ({"stop_token_ids": [5]}, "stop_token_ids"),
        ({"structured_outputs": {"regex": "a+"}}, "structured_outputs"),
        ({"echo": True}, "echo"),
        ({"suffix": "\ud800"}, "suffix"),
        ({"suffix": "a" * 100_000}, "suffix"),
    ],
)
async def test_what_it_cannot_do_is_refused_by_name(
    served: RunningCluster, fields: dict[str, Any], param: str
) -> None:
    asked = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 8}
    status, answer = await post(served, asked | fields)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_several_holes_are_filled_each_as_a_text_of_its_own(served: RunningCluster) -> None:
    parts = [BEFORE, {"mask": 9}, AFTER, {"mask": 3}, {"mask": 4}, "print(mean([1, 2]))"]
    asked = {"infill": parts, "temperature": 0.8, "seed": 4, "return_token_ids": True}
    status, whole = await post(served, asked)
    assert status == 200, whole
    [choice] = whole["choices"]
    assert [each["part"] for each in choice["parts"]] == [1, 3, 4]
    assert len(choice["token_ids"]) == whole["usage"]["completion_tokens"] == 16
    assert choice["text"] == "".join(each["text"] for each in choice["parts"])
    report = whole["metrics"]["speculative_decoding"]
    assert report["self_draft"] and 0 < report["num_target_passes"] <= 16
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{served.url}/v1/completions", json=asked | {"stream": True}) as answer,
    ):
        lines = [line async for line in answer.content if line.strip()]
    texts = {1: "", 3: "", 4: ""}
    for line in lines[:-1]:
        for each in json.loads(line.removeprefix(b"data: "))["choices"]:
            texts[each["part"]] += each["text"]
    assert texts == {each["part"]: each["text"] for each in choice["parts"]}
    status, refused = await post(served, asked | {"infill": ["a", {"mask": MAX_LEN}]})
    assert (status, refused["error"]["param"]) == (400, "infill")
