"""Deltas of an answer as gRPC responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deployments.ingress.openai.chat.choice import ChatText, called, finish_name, joined
from deployments.ingress.stream.sse import Delta
from foredraft.codec.common import logprobs_to_pb
from foredraft.types import Committed
from foredraft.v1 import generation_pb2 as pb


class Responses:
    """Writes one answer's responses, the last of which sums up; text separates calls."""

    def __init__(self, prompt_tokens: int, text: ChatText) -> None:
        self._prompt_tokens, self._text = prompt_tokens, text
        self._cached = self._completed = 0

    def whole(self, answer: Delta) -> pb.GenerateResponse:
        """Return the one response of a whole answer."""
        found = called(self._text, answer)
        calls = [{"index": at, **call} for at, call in enumerate(joined(found.calls))]
        return self._response(answer, found.content, calls)

    def of(self, delta: Delta) -> pb.GenerateResponse:
        """Return the response of what was added."""
        found = called(self._text, delta)
        return self._response(delta, found.content, found.calls)

    def _response(
        self, delta: Delta, text: str, calls: Sequence[dict[str, Any]]
    ) -> pb.GenerateResponse:
        self._cached += delta.cached_tokens
        self._completed += len(delta.tokens)
        found = pb.GenerateResponse(
            text=text, tokens=map(_token, delta.tokens), tool_calls=map(_call, calls)
        )
        if delta.finish_reason is not None:
            found.finish_reason = finish_name(self._text, delta.finish_reason)
            found.usage.prompt_tokens = self._prompt_tokens
            found.usage.cached_tokens = self._cached
            found.usage.completion_tokens = self._completed
        if (report := delta.report) is not None:
            found.speculation.rounds = report["num_rounds"]
            found.speculation.draft_rounds = report["num_spec_steps"]
            found.speculation.draft_tokens = report["num_draft_tokens"]
            found.speculation.bought_tokens = report["num_bought_tokens"]
            found.speculation.accepted_tokens = report["num_accepted_draft_tokens"]
        return found


def _call(part: dict[str, Any]) -> pb.ToolCall:
    """Return a call, or a part of one, given as the HTTP API has it."""
    function = part["function"]
    return pb.ToolCall(
        index=part["index"],
        id=part.get("id", ""),
        name=function.get("name", ""),
        arguments=function["arguments"],
    )


def _token(committed: Committed) -> pb.Token:
    logprobs = committed.logprobs
    return pb.Token(
        id=committed.token,
        origin=str(committed.origin),
        logprobs=None if logprobs is None else logprobs_to_pb(logprobs),
    )
