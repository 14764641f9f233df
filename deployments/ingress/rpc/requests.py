"""gRPC requests as those of the HTTP API: one validation, the same errors."""

from __future__ import annotations

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
        return _parsed(ChatRequest, values | conversation_of(m.input.conversation))
    return _parsed(CompletionRequest, values | {"prompt": text_of(m.input), "logprobs": logprobs})


def text_of(m: pb.Input) -> str | list[int]:
    """Return an input that is no conversation; raise InvalidRequest naming it if it is empty."""
    kind = m.WhichOneof("input")
    found = m.text if kind == "text" else list(m.token_ids.ids)
    if not found:
        raise InvalidRequest("input is empty", param="input")
    return found


def conversation_of(m: pb.Conversation) -> dict[str, Any]:
    """Return a conversation as fields of a chat request."""
    return {
        "messages": [{"role": each.role, "content": each.content} for each in m.messages],
        "continue_final_message": m.continue_final_message,
    }


def chat_of(m: pb.Conversation) -> ChatRequest:
    """Return a conversation that nothing else is asked of; raise InvalidRequest naming a field."""
    return _parsed(ChatRequest, conversation_of(m))


def _parsed(model: type[M], values: dict[str, Any]) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"{param}: {first['msg']}", param=param) from None
