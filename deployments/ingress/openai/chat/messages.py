"""The messages of a chat request, and what a chat template is given of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from foredraft.errors import InvalidRequest

MAX_CALLS = 128
MAX_PARTS = 256
# The API's newer name for the one that templates know.
_ROLES = {"developer": "system"}
# Fields of an answer that clients send back with it, and that say nothing where they are empty.
_OF_ANSWERS = {"annotations", "audio", "function_call", "refusal"}


class ContentPart(BaseModel):
    """A part of a message; only text is served."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(max_length=64)
    text: str | None = None


class CalledFunction(BaseModel):
    """The function of an earlier call; arguments is a JSON object as text."""

    name: str = Field(max_length=256)
    arguments: str = "{}"


class ToolCall(BaseModel):
    """An earlier call, as the answer had it."""

    id: str | None = Field(None, max_length=256)
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = Field(None, max_length=256)
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = Field(None, max_length=MAX_CALLS)
    tool_call_id: str | None = Field(None, max_length=256)


def described(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages as templates take them; raise InvalidRequest naming what is not served.

    The arguments of earlier calls are JSON values.
    """
    return [_described(message, f"messages.{at}") for at, message in enumerate(messages)]


def _described(message: Message, field: str) -> dict[str, Any]:
    for name, value in (message.model_extra or {}).items():
        if value or name not in _OF_ANSWERS:
            shown = name[:64]
            raise InvalidRequest(f"{field}.{shown} is not supported", param=f"{field}.{shown}")
    found: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "content": _text(message, field),
    }
    if message.tool_calls:
        if message.role != "assistant":
            raise InvalidRequest(
                f"{field}.tool_calls: only an assistant calls tools", param=f"{field}.tool_calls"
            )
        found["tool_calls"] = [
            _called(call, f"{field}.tool_calls.{at}") for at, call in enumerate(message.tool_calls)
        ]
    more = {
        "name": message.name,
        "reasoning_content": message.reasoning_content,
        "tool_call_id": message.tool_call_id,
    }
    return found | {name: value for name, value in more.items() if value is not None}


def _text(message: Message, field: str) -> str:
    content = message.content
    if content is None:
        if message.role != "assistant":
            raise InvalidRequest(f"{field}.content is missing", param=f"{field}.content")
        return ""
    if isinstance(content, str):
        return content
    if len(content) > MAX_PARTS:
        raise InvalidRequest(
            f"{field}.content has more than {MAX_PARTS} parts", param=f"{field}.content"
        )
    for at, part in enumerate(content):
        if part.type != "text" or part.text is None:
            place = f"{field}.content.{at}"
            raise InvalidRequest(f"{place}: this model reads text alone", param=place)
    return "\n".join(part.text or "" for part in content)


def _called(call: ToolCall, field: str) -> dict[str, Any]:
    place = f"{field}.function.arguments"
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"{place} is no JSON object", param=place)
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}
