"""SmolLM2-135M-Instruct with its drafter, as `foredraft serve` starts them, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import jsonschema
import pytest
from openai import AsyncOpenAI, BadRequestError
from tokenizers import Tokenizer

from deployments.config import CHAT_FILE, ROOT, read
from deployments.serve.cluster import RunningCluster
from foredraft.chat_template import read_chat_template
from foredraft.client import CompletionClient
from foredraft.gguf.smollm2 import NAME, smollm2_target
from foredraft_cli.prompts.held_out import sampling
from foredraft_cli.prompts.sets import chat_ids, prompt_sets

TOKENS = 48
TARGET = smollm2_target()


async def test_it_answers_in_sense_and_ends(chat: RunningCluster) -> None:
    assert TARGET is not None
    assert chat.health["drafter"]["refused"] is None and chat.refusal is None
    tokenizer = Tokenizer.from_file(str(TARGET / "tokenizer.json"))
    asked = chat_ids("What is the capital of France?", tokenizer, read_chat_template(TARGET))
    async with CompletionClient(chat.url) as client:
        answer = await client.complete(asked, sampling(0.0, 0), TOKENS)
    assert "Paris" in tokenizer.decode(answer.tokens)
    assert answer.tokens[-1] == tokenizer.token_to_id("<|im_end|>")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_drafts_change_no_token(chat: RunningCluster, temperature: float) -> None:
    assert TARGET is not None
    sets, _ = prompt_sets(TARGET / "tokenizer.json", 8192, 2, TOKENS)
    prompts = [prompt for each in sets for prompt in each.prompts]
    async with CompletionClient(chat.url) as client:
        # Whether or not they pay on this machine.
        always: dict[str, Any] = {"adl": {"name": "fixed", "k": 12}}
        ways: list[dict[str, Any]] = [
            {"enabled": False},
            always,
            always | {"verifier_led_rounds": 0},
        ]
        for at, prompt in enumerate(prompts):
            plain, *drafted = await asyncio.gather(
                *(
                    client.complete(prompt, sampling(temperature, at), TOKENS, **options)
                    for options in ways
                )
            )
            for fast in drafted:
                assert plain.tokens == fast.tokens
                assert fast.report["num_accepted_draft_tokens"] > 0
                # One that is late for long is left for another session.
                assert fast.report["drafter_attaches"] >= 1


def test_it_is_named_after_its_target(chat: RunningCluster) -> None:
    assert read(CHAT_FILE).application.args.name == NAME


CITIES = ["Oslo", "Lima", "Kyoto", "Accra", "Quito", "Turin", "Hanoi", "Perth"]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 16},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
CLOCK = {
    "type": "object",
    "properties": {"zone": {"enum": ["UTC", "CET"]}},
    "required": ["zone"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {"weather": WEATHER, "clock": CLOCK}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


def ask(at: int) -> dict[str, Any]:
    question = f"Call a function: {CITIES[at % 8]}, the next {2 + at % 5} days, or the time?"
    return {
        "model": NAME,
        "messages": [{"role": "user", "content": question}],
        "temperature": (0.0, 0.8, 1.2)[at % 3],
        "seed": at,
        "max_tokens": 120,
        "tools": TOOLS,
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }


# Most of their time is their prompts'. 200 were tried: FOREDRAFT_TOOL_CALLS=200.
CALLS = int(os.environ.get("FOREDRAFT_TOOL_CALLS", "20"))


async def test_tool_calls_follow_their_schema_with_drafts_and_without(
    chat: RunningCluster,
) -> None:
    client: Any = AsyncOpenAI(base_url=f"{chat.url}/v1", api_key="none", max_retries=0)
    turns = asyncio.Semaphore(16)

    async def called(at: int, speculative: dict[str, Any]) -> tuple[str, str]:
        async with turns:
            answer = await client.chat.completions.create(
                **ask(at), extra_body={"speculative": speculative}
            )
        [choice] = answer.choices
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        [call] = choice.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        return call.function.name, call.function.arguments

    always = {"adl": {"name": "fixed", "k": 12}}
    drafted = await asyncio.gather(*(called(at, always) for at in range(CALLS)))
    plain = await asyncio.gather(*(called(at, {"enabled": False}) for at in range(CALLS)))
    assert drafted == plain
    assert len(set(plain)) > 10
    await client.close()


async def test_the_openai_client_converses(chat: RunningCluster) -> None:
    client: Any = AsyncOpenAI(base_url=f"{chat.url}/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {
        "model": NAME,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0.8,
        "seed": 7,
        "max_completion_tokens": 40,
    }
    whole = await client.chat.completions.create(**asked, logprobs=True, top_logprobs=3)
    text = whole.choices[0].message.content
    again = await client.chat.completions.create(**asked)
    assert again.choices[0].message.content == text
    told = whole.choices[0].logprobs.content
    assert bytes(b for entry in told for b in entry.bytes).decode().startswith(text)
    assert all(len(entry.top_logprobs) == 3 for entry in told)
    streamed, usage = "", None
    options = {"include_usage": True}
    async for chunk in await client.chat.completions.create(
        **asked, stream=True, stream_options=options
    ):
        usage = chunk.usage or usage
        streamed += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert streamed == text
    assert usage is not None and usage.completion_tokens == whole.usage.completion_tokens
    with pytest.raises(BadRequestError) as refused:
        image = [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]
        await client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": image}]
        )
    assert refused.value.param == "messages.0.content.0"
    await client.close()


async def test_the_openai_client_streams_a_tool_call(chat: RunningCluster) -> None:
    client: Any = AsyncOpenAI(base_url=f"{chat.url}/v1", api_key="none", max_retries=0)
    async with client.chat.completions.stream(**ask(1)) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    whole = await client.chat.completions.create(**ask(1))
    [streamed], [call] = (each.choices[0].message.tool_calls for each in (final, whole))
    assert streamed.function.name == call.function.name
    assert streamed.function.arguments == call.function.arguments
    assert final.choices[0].finish_reason == "tool_calls"
    await client.close()


async def test_a_conversation_in_the_terminal(chat: RunningCluster) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from foredraft_cli.main import main; main()"),
        *("chat", chat.url, "--temperature", "0", "--max-tokens", "24"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    lines = b"Name a river.\n/plain\n/new\nName a river.\n/exit\n"
    told, _ = await asyncio.wait_for(process.communicate(lines), 120)
    text = told.decode()
    assert process.returncode == 0 and "drafts off" in text
    first, second = text.split("tokens in")[:2]
    answer = first.split("plain   \n")[-1].rsplit("\n", 1)[0].strip()
    # The same conversation again, without drafts: the same answer.
    assert answer and answer in second
