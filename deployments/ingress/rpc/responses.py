"""Deltas of an answer as gRPC responses."""

from __future__ import annotations

from deployments.ingress.stream.sse import Delta
from foredraft.codec.common import logprobs_to_pb
from foredraft.types import Committed
from foredraft.v1 import generation_pb2 as pb


class Responses:
    """Writes one answer's responses; the last one sums up."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._cached = self._completed = 0

    def of(self, delta: Delta) -> pb.GenerateResponse:
        """Return the response of what was added."""
        self._cached += delta.cached_tokens
        self._completed += len(delta.tokens)
        found = pb.GenerateResponse(text=delta.text, tokens=map(_token, delta.tokens))
        if delta.finish_reason is not None:
            found.finish_reason = str(delta.finish_reason)
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


def _token(committed: Committed) -> pb.Token:
    told = committed.logprobs
    return pb.Token(
        id=committed.token,
        origin=str(committed.origin),
        logprobs=None if told is None else logprobs_to_pb(told),
    )
