"""The chat route without a cluster: bodies, chunks, tool calls, logprobs, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tokenizers import Tokenizer

from deployments.config import model_path
from deployments.ingress.generations import Answering, Generations
from deployments.ingress.openai.routes import application, handlers
from deployments.ingress.stream.sse import Delta
from foredraft.types import Committed, FinishReason, Origin, TokenLogprobs
from orchestrator.config import OrchestratorConfig
from tests.support.http import listening
from tests.support.orchestrator.peers import MODEL, ScriptedDrafter, ScriptedVerifier, config

TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
EMBEDDED = Path(model_path("models/embedded/tokenizer/tokenizer.json"))
TOKENIZER = Tokenizer.from_file(str(EMBEDDED))
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
CALL = 'Look.\n<tool_call>\n{"name": "now", "arguments": {"a": [1, "}"]}}\n</tool_call>'
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}


class Scripted(Generations):
    """Answers every request with the same text, a few characters at a time."""

    def __init__(self, text: str, reason: FinishReason = FinishReason.STOP) -> None:
        super().__init__(
            "scripted",
            MODEL,
            TOKENIZER,
            config(),
            ScriptedDrafter(),
            ScriptedVerifier(),
            lambda *_: None,
        )
        self.text, self.reason = text, reason
        self.asked: list[Answering] = []
        self.report: dict[str, Any] = {"trace": []}

    async def deltas(
        self, answers: Sequence[Answering], config: OrchestratorConfig
    ) -> AsyncGenerator[tuple[int, Delta]]:
        self.asked += answers
        for at in range(len(answers)):
            parts = [self.text[i : i + 7] for i in range(0, len(self.text), 7)]
            for part in parts:
                told = TokenLogprobs(-0.5, 1, ((65, -0.5), (66, -1.5)))
                yield at, Delta(part, (Committed(65, Origin.KEPT, told),))
            yield at, Delta("", (), self.reason, self.report)


@asynccontextmanager
async def served(made: Generations, folder: Path, template: str | None) -> AsyncIterator[str]:
    (folder / "tokenizer.json").write_bytes(EMBEDDED.read_bytes())
    settings = {} if template is None else {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))

    async def health() -> dict[str, Any]:
        return {}

    async with listening(application(handlers(made, folder / "tokenizer.json"), health)) as url:
        yield url


async def post(url: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.post(url, json=body) as found:
        return found.status, await found.json()


async def events(url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=body | {"stream": True}) as found,
    ):
        lines = [line.strip() async for line in found.content if line.strip()]
    assert lines[-1] == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]


async def test_a_whole_answer_and_a_streamed_one(tmp_path: Path) -> None:
    made = Scripted("Good morning to you.")
    async with served(made, tmp_path, TEMPLATE) as url:
        status, body = await post(f"{url}/v1/chat/completions", ASKED | {"n": 2, "seed": 5})
        chunks = await events(f"{url}/v1/chat/completions", ASKED)
    assert status == 200 and body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    for choice in body["choices"]:
        assert choice["message"]["content"] == "Good morning to you."
        assert choice["message"]["role"] == "assistant"
        assert choice["finish_reason"] == "stop" and choice["logprobs"] is None
    assert [each.generation.sampling.seed for each in made.asked[:2]] == [5, 6]
    assert made.asked[0].generation.prompt == tuple(TOKENIZER.encode("Hello\n").ids)
    assert made.asked[0].generation.max_new_tokens == 20
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "Good morning to you."
    assert chunks[-1]["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }


async def test_tool_calls_whole_and_streamed(tmp_path: Path) -> None:
    asked = ASKED | {"tools": [TOOL]}
    async with served(Scripted(CALL), tmp_path, TEMPLATE) as url:
        _, body = await post(f"{url}/v1/chat/completions", asked)
        chunks = await events(f"{url}/v1/chat/completions", asked)
    [choice] = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Look.\n"
    [call] = choice["message"]["tool_calls"]
    assert call["type"] == "function" and call["id"].startswith("call_")
    assert call["function"] == {"name": "now", "arguments": '{"a": [1, "}"]}'}
    parts = [c for chunk in chunks for c in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert parts[0]["function"]["name"] == "now" and len(parts) > 1
    assert "".join(part["function"]["arguments"] for part in parts) == '{"a": [1, "}"]}'
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_what_the_grammar_asks_for(tmp_path: Path) -> None:
    made = Scripted("")
    async with served(made, tmp_path, TEMPLATE) as url:
        await post(f"{url}/v1/chat/completions", ASKED | {"tools": [TOOL]})
        await post(f"{url}/v1/chat/completions", ASKED | {"tools": [TOOL], "tool_choice": "none"})
    called, free = (each.generation.grammar for each in made.asked)
    assert called is not None and '"now' in called.text.replace("\\", "")
    assert free is None


async def test_a_call_that_ran_out_of_tokens_is_said_to_have(tmp_path: Path) -> None:
    made = Scripted(CALL[:-14], FinishReason.LENGTH)
    async with served(made, tmp_path, TEMPLATE) as url:
        _, body = await post(f"{url}/v1/chat/completions", ASKED | {"tools": [TOOL]})
    assert body["choices"][0]["finish_reason"] == "length"


async def test_logprobs_have_each_tokens_bytes(tmp_path: Path) -> None:
    made = Scripted("abc")
    async with served(made, tmp_path, TEMPLATE) as url:
        asked = ASKED | {"logprobs": True, "top_logprobs": 2}
        _, body = await post(f"{url}/v1/chat/completions", asked)
    assert made.asked[0].generation.logprobs == 2
    [entry] = body["choices"][0]["logprobs"]["content"]
    text = TOKENIZER.decode([65])
    assert entry["token"] == text and entry["bytes"] == list(text.encode())
    assert [each["logprob"] for each in entry["top_logprobs"]] == [-0.5, -1.5]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"chat_template": "{{ 1 }}"}, "chat_template"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "response_format": {"type": "json_object"}}, "tools"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"a": "b" * 5000}}, "chat_template_kwargs"),
        ({"messages": []}, "messages"),
        ({"min_tokens": 30}, "min_tokens"),
        ({"model": "another"}, "model"),
    ],
)
async def test_what_is_refused_is_named(tmp_path: Path, change: dict[str, Any], param: str) -> None:
    made = Scripted("")
    async with served(made, tmp_path, TEMPLATE) as url:
        status, body = await post(f"{url}/v1/chat/completions", ASKED | change)
    assert (status, body["error"]["param"]) == (404 if param == "model" else 400, param)
    assert not made.asked


async def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    async with served(Scripted(""), tmp_path, None) as url:
        status, body = await post(f"{url}/v1/chat/completions", ASKED)
        assert (status, body["error"]["param"]) == (400, "messages")
        assert "no chat template" in body["error"]["message"]


async def test_tokens_there_and_back(tmp_path: Path) -> None:
    async with served(Scripted(""), tmp_path, TEMPLATE) as url:
        text = "def f(x):"
        (_, whole), (_, talk) = await asyncio.gather(
            post(f"{url}/tokenize", {"prompt": text, "return_token_strs": True}),
            post(f"{url}/tokenize", {"messages": ASKED["messages"]}),
        )
        assert whole["tokens"] == TOKENIZER.encode(text).ids
        assert (whole["count"], whole["max_model_len"]) == (len(whole["tokens"]), MODEL.max_len)
        assert len(whole["token_strs"]) == whole["count"]
        assert talk["tokens"] == TOKENIZER.encode("Hello\n").ids
        _, back = await post(f"{url}/detokenize", {"tokens": whole["tokens"]})
        assert back == {"prompt": text}
        status, bad = await post(f"{url}/detokenize", {"tokens": [1 << 20]})
        assert (status, bad["error"]["param"]) == (400, "tokens")
        status, bad = await post(f"{url}/tokenize", {})
        assert status == 400 and "prompt" in bad["error"]["message"]


async def test_the_release_is_told(tmp_path: Path) -> None:
    async with (
        served(Scripted(""), tmp_path, None) as url,
        aiohttp.ClientSession() as http,
        http.get(f"{url}/version") as found,
    ):
        assert list(await found.json()) == ["version"]
