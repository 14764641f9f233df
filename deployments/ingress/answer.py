"""The bodies of one completion: a whole answer, or the chunks of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from tokenizers import Tokenizer

from deployments.ingress import errors
from deployments.ingress.api import CompletionRequest, usage
from deployments.ingress.logprobs import LogprobsText
from deployments.ingress.streaming import DONE, Collected, Delta, sse
from foredraft.errors import ForedraftError


class Answer:
    """The bodies of one request's answer: one id and creation time for all of them."""

    def __init__(
        self, model: str, request: CompletionRequest, prompt_tokens: int, tokenizer: Tokenizer
    ) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._request = request
        self._prompt_tokens = prompt_tokens
        self._logprobs = LogprobsText(tokenizer)

    def whole(self, answer: Collected) -> dict[str, Any]:
        """The body of a request that does not stream."""
        last = Delta(answer.text, tuple(answer.tokens), answer.finish_reason, answer.report)
        return self._head | {
            "choices": [self._choice(last)],
            "usage": usage(self._prompt_tokens, len(answer.tokens)),
            "metrics": self._metrics(answer.report),
        }

    async def events(self, first: Delta, rest: AsyncGenerator[Delta]) -> AsyncIterator[bytes]:
        """The server-sent events of a stream; an error becomes an event, then [DONE]."""
        options = self._request.stream_options
        completion_tokens = 0
        report = None
        try:
            async with aclosing(rest):
                delta: Delta | None = first
                while delta is not None:
                    completion_tokens += len(delta.tokens)
                    report = delta.report or report
                    if delta.text or delta.tokens or delta.finish_reason:
                        chunk = self._head | {"choices": [self._choice(delta)]}
                        if options and options.continuous_usage_stats:
                            chunk["usage"] = usage(self._prompt_tokens, completion_tokens)
                        yield sse(chunk)
                    delta = await anext(rest, None)
            if options and options.include_usage:
                yield sse(
                    self._head
                    | {
                        "choices": [],
                        "usage": usage(self._prompt_tokens, completion_tokens),
                        "metrics": self._metrics(report),
                    }
                )
        except ForedraftError as error:
            yield sse(errors.body_of(error))
        yield DONE

    def _metrics(self, report: dict[str, Any] | None) -> dict[str, Any]:
        """Return the speculation report, with the trace of lengths only if it was asked for."""
        if report is not None and not self._request.speculative.trace:
            report = {key: value for key, value in report.items() if key != "decisions"}
        return {"speculative_decoding": report}

    def _choice(self, delta: Delta) -> dict[str, Any]:
        reason = None if delta.finish_reason is None else str(delta.finish_reason)
        choice: dict[str, Any] = {
            "index": 0,
            "text": delta.text,
            "logprobs": self._logprobs.of(delta.tokens),
            "finish_reason": reason,
        }
        if self._request.return_token_ids:
            choice["token_ids"] = [committed.token for committed in delta.tokens]
        if self._request.speculative.detail:
            choice["origins"] = [str(committed.origin) for committed in delta.tokens]
        return choice
