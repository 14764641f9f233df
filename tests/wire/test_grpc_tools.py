"""Tool calls over GenerationService: the same grammar and calls as over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from deployments.ingress.doors.admission import Admission
from deployments.ingress.openai.report import speculation
from deployments.ingress.openai.routes import handlers
from deployments.ingress.rpc.calls import Calls
from deployments.ingress.rpc.config import RpcConfig
from deployments.ingress.rpc.server import RpcServer
from foredraft.v1 import generation_pb2 as pb
from foredraft.v1 import generation_pb2_grpc
from orchestrator.report import PLAIN, StatsAccumulator
from tests.unit.ingress.chat.test_chat import (
    ASKED,
    CALL,
    EMBEDDED,
    TEMPLATE,
    TOOL,
    Scripted,
    post,
    served,
)

ARGUMENTS = '{"a": [1, "}"]}'
NOW = pb.Tool(name="now", parameters='{"type": "object"}')
USER = pb.Message(role="user", content="Hello")


@asynccontextmanager
async def called(made: Scripted, folder: Path) -> AsyncIterator[Any]:
    (folder / "tokenizer.json").write_bytes(EMBEDDED.read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    made.report = speculation(StatsAccumulator(PLAIN).report(0.0, 0, 0))
    calls = Calls(handlers(made, folder / "tokenizer.json"), Admission((), lambda: 0.0), 8)
    server = RpcServer(calls, RpcConfig(port=0))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield generation_pb2_grpc.GenerationServiceStub(channel)
    finally:
        await server.stop()


def asking(**fields: Any) -> pb.GenerateRequest:
    asked = {"messages": [USER], "tools": [NOW]} | fields
    talk = pb.Conversation(**asked)
    return pb.GenerateRequest(input=pb.Input(conversation=talk), max_tokens=20)


async def test_calls_whole_and_streamed(tmp_path: Path) -> None:
    made = Scripted(CALL)
    async with called(made, tmp_path) as stub:
        whole = await stub.Generate(asking())
        parts = [part async for part in stub.GenerateStream(asking())]
    assert (whole.text, whole.finish_reason) == ("Look.\n", "tool_calls")
    [call] = whole.tool_calls
    assert (call.index, call.name, call.arguments) == (0, "now", ARGUMENTS)
    assert call.id.startswith("call_")
    assert "".join(part.text for part in parts) == "Look.\n"
    assert parts[-1].finish_reason == "tool_calls"
    streamed = [call for part in parts for call in part.tool_calls]
    assert streamed[0].name == "now" and len(streamed) > 1
    assert {call.index for call in streamed} == {0}
    assert "".join(call.arguments for call in streamed) == ARGUMENTS


@pytest.mark.parametrize(
    ("over_grpc", "over_http"),
    [
        ({}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"single_tool_call": True}, {"parallel_tool_calls": False}),
        ({"tool_name": "now"}, {"tool_choice": {"type": "function", "function": {"name": "now"}}}),
    ],
)
async def test_the_grammar_is_that_of_http(
    tmp_path: Path, over_grpc: dict[str, Any], over_http: dict[str, Any]
) -> None:
    made = Scripted("")
    async with called(made, tmp_path) as stub:
        await stub.Generate(asking(**over_grpc))
    async with served(made, tmp_path, TEMPLATE) as url:
        await post(f"{url}/v1/chat/completions", ASKED | {"tools": [TOOL]} | over_http)
    ours, theirs = made.asked
    assert ours.generation.grammar == theirs.generation.grammar
    assert ours.generation.prompt == theirs.generation.prompt


async def test_earlier_calls_and_their_results_are_read(tmp_path: Path) -> None:
    made = Scripted("")
    earlier = pb.Message(
        role="assistant", tool_calls=[pb.ToolCall(id="c", name="now", arguments="{}")]
    )
    result = pb.Message(role="tool", content="noon", tool_call_id="c")
    async with called(made, tmp_path) as stub:
        await stub.Generate(asking(messages=[USER, earlier, result]))
    assert made.asked[0].generation.prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [pb.Tool(name="now", parameters="{")]}, "tools.0.parameters"),
        ({"tools": [NOW, NOW]}, "tools.1.function.name"),
        ({"tools": [pb.Tool(name="a b")]}, "tools.0.function.name"),
        ({"tool_name": "then"}, "tool_choice.function.name"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        (
            {
                "messages": [
                    USER,
                    pb.Message(
                        role="assistant", tool_calls=[pb.ToolCall(name="now", arguments="[")]
                    ),
                ]
            },
            "messages.1.tool_calls.0.function.arguments",
        ),
    ],
)
async def test_bad_tools_are_named(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    async with called(Scripted(""), tmp_path) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Generate(asking(**fields))
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(failed.value.trailing_metadata())["foredraft-param"] == param
