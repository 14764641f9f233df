"""The any-subset target over HTTP: it fills holes, and drafts change none of its tokens."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from playwright.async_api import async_playwright

from deployments.serve.cluster import RunningCluster
from tests.support.browser import CHROMIUM, OPTIONS
from tests.support.cluster import post

MAX_LEN = 256
BEFORE, AFTER = "def mean(values):\n    return", " / len(values)\n"
ALWAYS = {"adl": {"name": "fixed", "k": 8}}


async def filled(kinds: RunningCluster, **fields: Any) -> tuple[list[int], str, dict[str, Any]]:
    asked = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 40, "return_token_ids": True}
    status, answer = await post(kinds, asked | fields)
    assert status == 200, answer
    [found] = answer["choices"]
    assert found["finish_reason"] == "length"
    return found["token_ids"], found["text"], answer


@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_a_hole_is_filled_alike_with_drafts_and_without(
    kinds: RunningCluster, temperature: float
) -> None:
    sampling = {"temperature": temperature, "seed": 5}
    plain = await filled(kinds, speculative={"enabled": False}, **sampling)
    assert len(plain[0]) == 40
    itself = await filled(kinds, **sampling)
    if kinds.health["verifier"]["numerics"] == "exact":
        assert itself[:2] == plain[:2]
    passes = [
        each[2]["metrics"]["speculative_decoding"]["num_target_passes"] for each in (plain, itself)
    ]
    assert passes[1] <= passes[0] == 40
    drafted = 0
    for speculative in (ALWAYS, ALWAYS | {"proposal": "lookup", "ngram": {"enabled": False}}):
        fast = await filled(kinds, speculative=speculative, **sampling)
        if kinds.health["verifier"]["numerics"] == "exact":
            assert fast[:2] == plain[:2]
        drafted += fast[2]["metrics"]["speculative_decoding"]["num_draft_tokens"]
    assert drafted > 0


async def test_what_comes_after_the_hole_counts(kinds: RunningCluster) -> None:
    one, other = [
        await filled(kinds, suffix=suffix, temperature=0) for suffix in (AFTER, "dog sleeps")
    ]
    assert one[0] != other[0]
    assert one[2]["usage"]["prompt_tokens"] != other[2]["usage"]["prompt_tokens"]
    # The end of the text may stay open.
    status, answer = await post(kinds, {"prompt": BEFORE, "max_tokens": 7, "temperature": 0})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 7)


async def test_a_stream_adds_up_to_the_whole_hole(kinds: RunningCluster) -> None:
    _, whole, _ = await filled(kinds, temperature=0.8, seed=3)
    asked = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 40, "temperature": 0.8, "seed": 3}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{kinds.url}/v1/completions", json=asked | {"stream": True}) as answer,
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
    kinds: RunningCluster, fields: dict[str, Any], param: str
) -> None:
    asked = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 8}
    status, answer = await post(kinds, asked | fields)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_several_holes_are_filled_each_as_a_text_of_its_own(kinds: RunningCluster) -> None:
    parts = [BEFORE, {"mask": 9}, AFTER, {"mask": 3}, {"mask": 4}, "print(mean([1, 2]))"]
    asked = {"infill": parts, "temperature": 0.8, "seed": 4, "return_token_ids": True}
    status, whole = await post(kinds, asked)
    assert status == 200, whole
    [choice] = whole["choices"]
    assert [each["part"] for each in choice["parts"]] == [1, 3, 4]
    assert len(choice["token_ids"]) == whole["usage"]["completion_tokens"] == 16
    assert choice["text"] == "".join(each["text"] for each in choice["parts"])
    report = whole["metrics"]["speculative_decoding"]
    assert report["self_draft"] and 0 < report["num_target_passes"] <= 16
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{kinds.url}/v1/completions", json=asked | {"stream": True}) as answer,
    ):
        lines = [line async for line in answer.content if line.strip()]
    texts = {1: "", 3: "", 4: ""}
    for line in lines[:-1]:
        for each in json.loads(line.removeprefix(b"data: "))["choices"]:
            texts[each["part"]] += each["text"]
    assert texts == {each["part"]: each["text"] for each in choice["parts"]}
    status, refused = await post(kinds, asked | {"infill": ["a", {"mask": MAX_LEN}]})
    assert (status, refused["error"]["param"]) == (400, "infill")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: make packages")
async def test_the_playground_numbers_tokens_in_the_order_in_which_they_came(
    kinds: RunningCluster,
) -> None:
    said: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        page = await browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.goto(kinds.url)
        await page.wait_for_selector("[value=infill]:checked")
        await page.fill("#prompt", "def add(a, b):\n    return {{3}}\n\n\nprint(add({{4}}))\n")
        await page.click("#race")
        await page.wait_for_selector("#output[data-ended='1']", timeout=60_000)
        assert (await page.text_content("#verdict") or "").startswith("identical 7/7, ")
        holes = page.locator("#fast .hole")
        numbers = [
            await hole.locator(".token").evaluate_all("all => all.map(e => e.dataset.order)")
            for hole in await holes.all()
        ]
        assert numbers == [["1", "2", "3"], ["4", "5", "6", "7"]]
        given = await page.locator("#fast .before").all_text_contents()
        assert given == ["def add(a, b):\n    return ", "\n\n\nprint(add(", "))\n"]
        await browser.close()
    assert said == []
