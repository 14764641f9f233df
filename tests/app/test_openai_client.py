"""OpenAI's own client: texts, seeds, logprobs, errors by their class, timeouts, cancellation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from deployments.serve.cluster import RunningCluster
from tests.support.waiting import eventually

PROMPT = "def area(width, height):\n"
LONG: dict[str, Any] = {"max_tokens": 1500, "extra_body": {"ignore_eos": True}}


@pytest.fixture
async def client(chat: RunningCluster) -> AsyncIterator[Any]:
    async with AsyncOpenAI(base_url=f"{chat.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture
async def model(client: Any) -> str:
    found = await client.models.list()
    return str(found.data[0].id)


async def sessions(chat: RunningCluster) -> float:
    async with aiohttp.ClientSession() as http, http.get(f"{chat.url}/health") as answer:
        return float((await answer.json())["verifier"]["sessions"])


async def test_texts_by_seed_whole_and_streamed(client: Any, model: str) -> None:
    asked = {"model": model, "prompt": PROMPT, "max_tokens": 24, "temperature": 0.8}
    first = await client.completions.create(**asked, seed=3, n=2, logprobs=2)
    again = await client.completions.create(**asked, seed=3, n=2)
    assert [c.text for c in first.choices] == [c.text for c in again.choices]
    assert first.choices[0].text != first.choices[1].text
    assert len(first.choices[0].logprobs.tokens) == first.usage.completion_tokens / 2
    # Answer number i has seed + i.
    other = await client.completions.create(**asked, seed=4)
    assert other.choices[0].text == first.choices[1].text
    streamed = ""
    async for chunk in await client.completions.create(**asked, seed=3, stream=True):
        streamed += "".join(choice.text for choice in chunk.choices)
    assert streamed == first.choices[0].text


async def test_errors_have_their_class_and_name_the_field(client: Any, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.completions.create(model="another", prompt=PROMPT)
    assert missing.value.param == "model"
    for fields, param in (
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt": ""}, "prompt"),
        ({"extra_body": {"suffix": "end"}}, "suffix"),
        ({"stop": ["x"] * 17}, "stop"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.completions.create(**{"model": model, "prompt": PROMPT, **fields})
        assert refused.value.param == param
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model=model, messages=[])
    assert refused.value.param == "messages"
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model=model, input="x")


async def test_a_timeout_is_the_clients_and_frees_the_session(
    chat: RunningCluster, client: Any, model: str
) -> None:
    hasty = client.with_options(timeout=0.2)
    with pytest.raises(openai.APITimeoutError):
        await hasty.completions.create(model=model, prompt=PROMPT, **LONG)

    async def freed() -> bool:
        return await sessions(chat) == 0

    await eventually(freed, every_s=0.1)


async def test_a_closed_stream_frees_its_session(
    chat: RunningCluster, client: Any, model: str
) -> None:
    stream = await client.completions.create(model=model, prompt=PROMPT, stream=True, **LONG)
    taken = 0
    async for _ in stream:
        taken += 1
        if taken == 2:
            break
    await stream.close()

    async def freed() -> bool:
        return await sessions(chat) == 0

    await eventually(freed, every_s=0.1)
    after = await client.completions.create(model=model, prompt=PROMPT, max_tokens=4)
    assert after.usage.completion_tokens == 4
