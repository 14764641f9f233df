"""gRPC requests as those of the HTTP API: one validation, the same errors."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.openai.fields import GenerationFields
from foredraft.codec.common import logits_from_pb, named, sampling_from_pb
from foredraft.errors import InvalidRequest
from foredraft.types import GrammarKind
from foredraft.v1 import generation_pb2 as pb

M = TypeVar("M", bound=BaseModel)

_STRUCTURED = {
    GrammarKind.JSON_SCHEMA: "json",
    GrammarKind.REGEX: "regex",
    GrammarKind.LARK: "grammar",
}


def request_of(m: pb.GenerateRequest) -> GenerationFields:
    """Return what is asked for, its fields checked; raise InvalidRequest naming one."""
    sampling, logits = sampling_from_pb(m.sampling), logits_from_pb(m.logits)
    values: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p or 1.0,
        "min_p": sampling.min_p,
        "seed": sampling.seed,
        "repetition_penalty": logits.repetition_penalty,
        "presence_penalty": logits.presence_penalty,
        "frequency_penalty": logits.frequency_penalty,
        "min_tokens": logits.min_tokens,
        "logit_bias": dict(logits.logit_bias),
        "allowed_token_ids": list(logits.allowed_token_ids) or None,
        "max_tokens": m.max_tokens or None,
        "stop": list(m.stop),
        "stop_token_ids": list(m.stop_token_ids),
        "ignore_eos": m.ignore_eos,
        "cache_salt": m.cache_salt or None,
        "speculative": {"enabled": not m.plain},
    }
    if m.HasField("grammar"):
        kind = named("grammar.kind", GrammarKind, m.grammar.kind)
        values["structured_outputs"] = {_STRUCTURED[kind]: m.grammar.text}
    logprobs = m.logprobs if m.HasField("logprobs") else None
    if m.input.WhichOneof("input") == "conversation":
        if logprobs is not None:
            values |= {"logprobs": True, "top_logprobs": logprobs}
        return parsed(ChatRequest, values | conversation_of(m.input.conversation))
    return parsed(CompletionRequest, values | {"prompt": prompt_of(m.input), "logprobs": logprobs})


def prompt_of(m: pb.Input) -> str | list[int]:
    """Return an input that is no conversation; raise InvalidRequest naming it if it is empty."""
    kind = m.WhichOneof("input")
    found = m.text if kind == "text" else list(m.token_ids.ids)
    if not found:
        raise InvalidRequest("input is empty", param="input")
    return found


def conversation_of(m: pb.Conversation) -> dict[str, Any]:
    """Return a conversation as fields of a chat request; raise InvalidRequest naming one."""
    found: dict[str, Any] = {
        "messages": [_message(each) for each in m.messages],
        "continue_final_message": m.continue_final_message,
        "parallel_tool_calls": not m.single_tool_call,
    }
    if m.tools:
        found["tools"] = [_tool(each, at) for at, each in enumerate(m.tools)]
    if m.tool_name:
        found["tool_choice"] = {"type": "function", "function": {"name": m.tool_name}}
    elif m.tool_choice:
        found["tool_choice"] = m.tool_choice
    return found


def _message(m: pb.Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": m.role, "content": m.content}
    if m.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in m.tool_calls
        ]
    if m.tool_call_id:
        found["tool_call_id"] = m.tool_call_id
    return found


def _tool(m: pb.Tool, at: int) -> dict[str, Any]:
    function: dict[str, Any] = {"name": m.name, "description": m.description or None}
    if m.parameters:
        try:
            function["parameters"] = json.loads(m.parameters)
        except (ValueError, RecursionError):
            field = f"tools.{at}.parameters"
            raise InvalidRequest(f"{field} is no JSON", param=field) from None
    return {"type": "function", "function": function}


def chat_of(m: pb.Conversation) -> ChatRequest:
    """Return a conversation that nothing else is asked of; raise InvalidRequest naming a field."""
    return parsed(ChatRequest, conversation_of(m))


def parsed(model: type[M], values: dict[str, Any]) -> M:
    """Return a request of these fields; raise InvalidRequest naming one that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"{param}: {first['msg']}", param=param) from None
