"""The block-diffusion target over HTTP: drafts change no token, and a lost replica costs none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import aiohttp
import pytest

from deployments.serve.cluster import RunningCluster
from deployments.serve.processes import replicas
from tests.support.cluster import post

NAME = "foredraft-diffusion"
PROMPT = (
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):"
)
ASKED = {"model": NAME, "prompt": PROMPT, "max_tokens": 44, "return_token_ids": True}


async def denoised(kinds: RunningCluster, **fields: Any) -> tuple[list[int], dict[str, Any]]:
    status, answer = await post(kinds, ASKED | fields)
    assert status == 200, answer
    [choice] = answer["choices"]
    return choice["token_ids"], answer["metrics"]["speculative_decoding"]


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(
    "unmasking", [{"kind": "dynamic", "threshold": 0.9}, {"kind": "static", "per_step": 2}]
)
async def test_drafts_change_no_token(
    kinds: RunningCluster, temperature: float, unmasking: dict[str, Any]
) -> None:
    asked = {"temperature": temperature, "seed": 3, "unmasking": unmasking, "ignore_eos": True}
    plain, without = await denoised(kinds, **asked, speculative={"enabled": False})
    drafted, report = await denoised(kinds, **asked)
    assert len(plain) == 44 and drafted == plain
    assert 0 < report["num_target_passes"] <= without["num_target_passes"]


async def test_both_targets_answer_by_their_names(kinds: RunningCluster) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{kinds.url}/v1/models") as answer,
    ):
        names = {each["id"] for each in (await answer.json())["data"]}
    assert names == {NAME, "foredraft-any-subset"}
    for name in names:
        status, found = await post(kinds, {"model": name, "prompt": PROMPT, "max_tokens": 4})
        assert (status, found["model"]) == (200, name)
    status, refused = await post(kinds, ASKED | {"logprobs": 1})
    assert (status, refused["error"]["param"]) == (400, "logprobs")


async def test_a_stream_shows_blocks_and_outlives_its_replica(kinds: RunningCluster) -> None:
    whole, _ = await denoised(kinds, temperature=1, seed=9, max_tokens=400, ignore_eos=True)
    asked = ASKED | {"temperature": 1, "seed": 9, "max_tokens": 400, "ignore_eos": True}
    streamed: list[int] = []
    blocks, killed = 0, False
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{kinds.url}/v1/completions",
            json=asked | {"stream": True, "speculative": {"detail": True}},
        ) as answer,
    ):
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line.removeprefix(b"data: "))["choices"]:
                streamed += choice["token_ids"]
                blocks += "block" in choice
            if len(streamed) > 40 and not killed:
                killed = True
                [process] = replicas("denoiser", "kinds")
                os.kill(process, signal.SIGKILL)
    assert killed and blocks > 0
    assert streamed == whole
    while len(replicas("denoiser", "kinds")) != 1:
        await asyncio.sleep(0.1)
