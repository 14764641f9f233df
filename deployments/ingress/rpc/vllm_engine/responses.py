"""Deltas of an answer as VllmEngine's chunks, and the whole of it at its end."""

from __future__ import annotations

from collections.abc import Sequence

from smg_grpc_proto import vllm_engine_pb2 as pb

from deployments.ingress.stream.sse import CompletionBuffer, Delta
from foredraft.types import Committed, FinishReason

ABORT = "abort"


class EngineResponses:
    """Writes one answer, number `index` of a request; stop_tokens are those that may end it."""

    def __init__(self, index: int, prompt_tokens: int, stop_tokens: frozenset[int]) -> None:
        self._index, self._prompt_tokens = index, prompt_tokens
        self._stop_tokens = stop_tokens
        self._whole = CompletionBuffer()
        self._ended = False

    def chunk(self, delta: Delta) -> pb.GenerateResponse:
        """Return the chunk of what was added."""
        chunk = pb.GenerateStreamChunk(
            token_ids=[committed.token for committed in delta.tokens],
            prompt_tokens=self._prompt_tokens,
            completion_tokens=len(self._whole.tokens),
            cached_tokens=self._whole.cached_tokens,
            output_logprobs=_logprobs(delta.tokens),
            index=self._index,
        )
        return pb.GenerateResponse(chunk=chunk)

    def add(self, delta: Delta) -> None:
        """Take in what was added; chunk and complete tell of it."""
        self._whole.add(delta)

    @property
    def ended(self) -> bool:
        """Whether complete was made."""
        return self._ended

    def complete(self, reason: str | None = None) -> pb.GenerateResponse:
        """Return the whole answer, ended by its finish reason or by another one."""
        self._ended = True
        whole = self._whole
        report = whole.report or {}
        found = pb.GenerateComplete(
            output_ids=[committed.token for committed in whole.tokens],
            finish_reason=reason or str(whole.finish_reason),
            prompt_tokens=self._prompt_tokens,
            completion_tokens=len(whole.tokens),
            cached_tokens=whole.cached_tokens,
            output_logprobs=_logprobs(whole.tokens),
            index=self._index,
            spec_accepted_tokens=report.get("num_accepted_draft_tokens", 0),
            spec_draft_tokens=report.get("num_draft_tokens", 0),
        )
        last = whole.tokens[-1].token if whole.tokens else None
        if whole.finish_reason is FinishReason.STOP and last in self._stop_tokens:
            found.matched_token_id = last
        return pb.GenerateResponse(complete=found)


def _logprobs(tokens: Sequence[Committed]) -> pb.OutputLogProbs | None:
    known = [(each.token, each.logprobs) for each in tokens if each.logprobs is not None]
    if not known:
        return None
    return pb.OutputLogProbs(
        token_ids=[token for token, _ in known],
        token_logprobs=[logprobs.logprob for _, logprobs in known],
        top_logprobs=[
            pb.TopLogProbs(
                token_ids=[token for token, _ in logprobs.top],
                values=[value for _, value in logprobs.top],
            )
            for _, logprobs in known
        ],
    )
