"""The HTTP surface without a cluster: what is refused, what ends a text, how a server stops."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tokenizers import Tokenizer

from deployments.canary.arms import OneArm
from deployments.config import model_path
from deployments.ingress.generations import Generations
from deployments.ingress.openai.prompts import Prompts
from deployments.ingress.openai.routes import application, handlers
from foredraft.errors import InvalidRequest
from tests.support.http import listening
from tests.support.orchestrator.peers import (
    MODEL,
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    continuation,
)

TOKENIZER_FILE = Path(model_path("models/embedded/tokenizer/tokenizer.json"))
TOKENIZER = Tokenizer.from_file(str(TOKENIZER_FILE))
PROMPT = [3, 1, 4, 1, 5]


def generations(verifier: ScriptedVerifier, ends: tuple[int, ...] = ()) -> Generations:
    target = replace(MODEL, eos_token_ids=ends)
    verifier.model = target
    arms = OneArm(ScriptedDrafter())
    return Generations("scripted", target, TOKENIZER, config(), arms, verifier, lambda *_: None)


@asynccontextmanager
async def served(made: Generations) -> AsyncIterator[str]:
    async def health() -> dict[str, Any]:
        return {}

    async with listening(application(handlers(made, TOKENIZER_FILE), health)) as url:
        yield f"{url}/v1/completions"


async def post(url: str, body: dict[str, Any]) -> tuple[int, Any]:
    data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    async with aiohttp.ClientSession() as http, http.post(url, data=data, headers=headers) as found:
        return found.status, await found.json()


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": "\ud800abc"}, "prompt"),
        ({"prompt": ["fine", "a\udfff"]}, "prompt"),
        ({"top_k": 1 << 32}, "top_k"),
        ({"top_k": 10**30}, "top_k"),
        ({"include_stop_str_in_output": True}, "include_stop_str_in_output"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"add_special_tokens": False}, "add_special_tokens"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
        ({"temprature": 0.5}, "temprature"),
        ({"speculative": {"half \ud800": 1}}, "speculative"),
        ({"model": "\ud800"}, "model"),
    ],
)
async def test_what_would_change_the_output_is_refused_by_name(
    change: dict[str, Any], param: str
) -> None:
    verifier = ScriptedVerifier()
    async with served(generations(verifier)) as url:
        status, body = await post(url, {"prompt": PROMPT, "max_tokens": 4} | change)
    assert (status, body["error"]["param"]) == (404 if param == "model" else 400, param)
    assert not verifier.opens


async def test_what_asks_for_nothing_passes() -> None:
    neutral = {
        "user": "u",
        "metadata": {"a": "b"},
        "best_of": 1,
        "suffix": "",
        "skip_special_tokens": True,
        "add_special_tokens": True,
        "include_stop_str_in_output": False,
        "guided_json": None,
        "tools": None,
        "return_token_ids": None,
        "speculative": None,
        "stream_options": None,
    }
    async with served(generations(ScriptedVerifier())) as url:
        status, body = await post(url, {"prompt": PROMPT, "max_tokens": 4} | neutral)
    assert status == 200, body
    assert body["usage"]["completion_tokens"] == 4


async def test_a_text_ends_at_each_of_the_targets_ends_unless_they_are_ignored() -> None:
    text = continuation(PROMPT, 12)
    ends = (text[8], text[5])
    first = min(text.index(end) for end in ends)
    body = {"prompt": PROMPT, "max_tokens": 12, "return_token_ids": True}
    async with served(generations(ScriptedVerifier(), ends)) as url:
        for enabled in (True, False):
            asked = body | {"speculative": {"enabled": enabled}}
            _, ended = await post(url, asked)
            [choice] = ended["choices"]
            assert choice["token_ids"] == list(text[: first + 1])
            assert choice["finish_reason"] == "stop"
            assert choice["text"] == TOKENIZER.decode(list(text[:first]))
            _, whole = await post(url, asked | {"ignore_eos": True})
            assert whole["choices"][0]["token_ids"] == list(text)
            assert whole["choices"][0]["finish_reason"] == "length"


async def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    prompts = Prompts(Watched(read), max_len=10)
    with pytest.raises(InvalidRequest, match="characters") as refused:
        await prompts.tokens("a" * 31)
    assert refused.value.param == "prompt"
    assert not read
    assert await prompts.tokens("a" * 30) == (30,)
    assert read == ["a" * 30]


class Watched:
    """A tokenizer that takes until somebody else has done something."""

    def __init__(self, read: list[str]) -> None:
        self.read = read
        self.go_on = threading.Event()
        self.go_on.set()

    def get_vocab_size(self) -> int:
        return 3

    def get_vocab(self) -> dict[str, int]:
        return {"a": 0, "aaa": 1, "b": 2}

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[Any]:
        self.read += texts
        assert self.go_on.wait(10)
        [text] = texts
        return [type("Encoding", (), {"ids": [len(text)]})]


async def test_the_event_loop_goes_on_while_a_prompt_is_tokenised() -> None:
    tokenizer = Watched([])
    tokenizer.go_on.clear()
    reading = asyncio.create_task(Prompts(tokenizer, 10).tokens("aa"))
    while not tokenizer.read:
        await asyncio.sleep(0)
    tokenizer.go_on.set()
    assert await reading == (2,)


def test_tokenising_lets_other_threads_run() -> None:
    """The call that Prompts uses gives up the interpreter; encode() does not."""
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    beside = threading.Thread(target=tick)
    beside.start()
    before = ticks
    TOKENIZER.encode_batch_fast(["a b" * 100_000])
    after = ticks
    done.set()
    beside.join()
    assert after > before + 3


async def test_a_server_that_stops_refuses_and_ends_what_goes_on_with_an_error() -> None:
    verifier = ScriptedVerifier()
    halfway, never = asyncio.Event(), asyncio.Event()

    async def before(index: int) -> None:
        if index == 2:
            halfway.set()
            await never.wait()

    verifier.before = before
    made = generations(verifier)
    body = {"prompt": PROMPT, "max_tokens": 40, "stream": True, "speculative": {"enabled": False}}
    async with (
        served(made) as url,
        aiohttp.ClientSession() as http,
        http.post(url, json=body) as answer,
    ):
        await halfway.wait()
        # Not the grace period, but what ends when it is over, is what is looked at.
        draining = asyncio.create_task(made.stopping.drain(0.05))
        lines = [line async for line in answer.content if line.strip()]
        await draining
        status, refused = await post(url, {"prompt": PROMPT})
    assert lines[-1] == b"data: [DONE]\n"
    error = json.loads(lines[-2].removeprefix(b"data: "))["error"]
    assert (error["type"], error["message"]) == ("unavailable_error", "the server is stopping")
    assert (status, refused["error"]["type"]) == (503, "unavailable_error")
    assert not verifier.live


async def test_what_cannot_be_served_now_says_when_to_come_back() -> None:
    made = generations(ScriptedVerifier())
    await made.stopping.drain(0)
    async with (
        served(made) as url,
        aiohttp.ClientSession() as http,
        http.post(url, json={"prompt": PROMPT}) as answer,
    ):
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_what_ends_by_itself_in_the_grace_period_ends_whole() -> None:
    verifier = ScriptedVerifier()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def before(index: int) -> None:
        begun.set()
        await go_on.wait()

    verifier.before = before
    made = generations(verifier)
    async with served(made) as url:
        asked = {"prompt": PROMPT, "max_tokens": 9, "return_token_ids": True}
        answering = asyncio.create_task(post(url, asked))
        await begun.wait()
        draining = asyncio.create_task(made.stopping.drain(60))
        go_on.set()
        status, body = await answering
        await draining
    assert status == 200
    assert body["choices"][0]["token_ids"] == list(continuation(PROMPT, 9))
