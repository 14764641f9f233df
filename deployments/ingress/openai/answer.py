"""The bodies of one request: whole answers, or the chunks of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from deployments.ingress.openai import errors
from deployments.ingress.openai.api import CompletionRequest, usage
from deployments.ingress.openai.echo import ChoiceWriter
from deployments.ingress.openai.report import trace
from deployments.ingress.stream.sse import DONE, CompletionBuffer, Delta, sse
from foredraft.errors import ForedraftError


class CompletionResponse:
    """The bodies of one request's answer: one id and creation time for all of them."""

    def __init__(
        self,
        model: str,
        request: CompletionRequest,
        prompt_tokens: int,
        choices: Sequence[ChoiceWriter],
    ) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._request = request
        self._prompt_tokens = prompt_tokens
        self._choices = choices

    def whole(self, answers: Sequence[CompletionBuffer]) -> dict[str, Any]:
        """The body of a request that does not stream."""
        choices = [self._choice(index, a.delta) for index, a in enumerate(answers)]
        return self._head | {
            "choices": choices,
            "usage": self._usage(
                [a.cached_tokens for a in answers], sum(len(a.tokens) for a in answers)
            ),
            "metrics": self._metrics([a.report for a in answers]),
        }

    async def events(
        self, first: tuple[int, Delta], rest: AsyncGenerator[tuple[int, Delta]]
    ) -> AsyncIterator[bytes]:
        """The server-sent events of a stream; an error becomes an event, then [DONE]."""
        options = self._request.stream_options
        completion_tokens, cached = 0, [0] * len(self._choices)
        reports: list[dict[str, Any] | None] = [None] * len(self._choices)
        try:
            async with aclosing(rest):
                item: tuple[int, Delta] | None = first
                while item is not None:
                    index, delta = item
                    completion_tokens += len(delta.tokens)
                    cached[index] += delta.cached_tokens
                    reports[index] = delta.report or reports[index]
                    if delta.text or delta.tokens or delta.finish_reason:
                        chunk = self._head | {"choices": [self._choice(index, delta)]}
                        if options and options.continuous_usage_stats:
                            chunk["usage"] = self._usage(cached, completion_tokens)
                        yield sse(chunk)
                    item = await anext(rest, None)
            if options and options.include_usage:
                yield sse(
                    self._head
                    | {
                        "choices": [],
                        "usage": self._usage(cached, completion_tokens),
                        "metrics": self._metrics(reports),
                    }
                )
        except ForedraftError as error:
            yield sse(errors.body_of(error))
        yield DONE

    def _usage(self, cached: Sequence[int], completion_tokens: int) -> dict[str, Any]:
        """Return the usage object; of a prompt's answers, all but the one that read it share."""
        each = self._request.samples
        shared = (min(cached[at : at + each]) for at in range(0, len(cached), each))
        return usage(self._prompt_tokens, sum(shared), completion_tokens)

    def _metrics(self, reports: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
        """Return the speculation report, one for each choice where there are several.

        The trace of rounds is in it only if it was asked for.
        """
        shown = [report and self._shown(report) for report in reports]
        return {"speculative_decoding": shown[0] if len(shown) == 1 else shown}

    def _shown(self, report: dict[str, Any]) -> dict[str, Any]:
        shown = dict(report)
        rounds = shown.pop("trace")
        return shown | {"trace": trace(rounds)} if self._request.speculative.trace else shown

    def _choice(self, index: int, delta: Delta) -> dict[str, Any]:
        reason = None if delta.finish_reason is None else str(delta.finish_reason)
        written = self._choices[index]
        choice: dict[str, Any] = {
            "index": index,
            "text": written.text(delta),
            "logprobs": written.logprobs(delta),
            "finish_reason": reason,
        }
        if self._request.return_token_ids:
            choice["token_ids"] = [committed.token for committed in delta.tokens]
        if self._request.speculative.detail:
            choice["origins"] = [str(committed.origin) for committed in delta.tokens]
        return choice
