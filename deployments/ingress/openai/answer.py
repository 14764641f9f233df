"""The bodies of one request: whole answers, or the chunks of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from tokenizers import Tokenizer

from deployments.ingress.openai import errors
from deployments.ingress.openai.fields import GenerationFields, usage
from deployments.ingress.openai.report import trace
from deployments.ingress.openai.rounds import Rounds
from deployments.ingress.stream.resume import EventId
from deployments.ingress.stream.sse import COMMENT, DONE, CompletionBuffer, Delta, sse
from foredraft.errors import ForedraftError
from foredraft.types import FinishReason


class BodyKind(NamedTuple):
    """What the bodies of a route are called: the beginning of their ids, and their objects."""

    id_prefix: str
    whole: str
    chunk: str


class ChoiceWriter(Protocol):
    """Writes one choice as the route's API has it."""

    def whole(self, answer: Delta) -> dict[str, Any]:
        """Return the fields of a choice that does not stream."""

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        """Return the fields of the choice in each of the stream's next chunks."""

    def finish_reason(self, reason: FinishReason) -> str:
        """Return why the choice ended, in the API's words; asked for after its last text."""


class Answer:
    """The bodies of one request's answer: one id and creation time for all of them."""

    def __init__(
        self,
        kind: BodyKind,
        model: str,
        request: GenerationFields,
        prompt_tokens: int,
        choices: Sequence[ChoiceWriter],
        tokenizer: Tokenizer,
    ) -> None:
        self._kind = kind
        self._head = {
            "id": f"{kind.id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        self._request = request
        self._prompt_tokens = prompt_tokens
        self._choices = choices
        self._rounds = Rounds(tokenizer)

    def whole(self, answers: Sequence[CompletionBuffer], unseen: int = 0) -> dict[str, Any]:
        """The body of a request that does not stream; so many decoded tokens are not in it."""
        written = [self._choices[at].whole(each.delta) for at, each in enumerate(answers)]
        choices = [
            self._choice(at, each.delta, fields)
            for at, (each, fields) in enumerate(zip(answers, written, strict=True))
        ]
        return self._head | {
            "object": self._kind.whole,
            "choices": choices,
            "usage": self._usage(
                [a.cached_tokens for a in answers], unseen + sum(len(a.tokens) for a in answers)
            ),
            "metrics": self._metrics([a.report for a in answers]),
        }

    async def events(
        self,
        first: tuple[int, Delta],
        rest: AsyncGenerator[tuple[int, Delta]],
        begun: EventId | None = None,
    ) -> AsyncIterator[bytes]:
        """The server-sent events of a stream; an error becomes an event, then [DONE].

        begun is what was sent before; without it the events have no ids.
        """
        options = self._request.stream_options
        head = self._head | {"object": self._kind.chunk}
        sent = list(begun.sent) if begun else []
        completion_tokens, cached = sum(each.tokens for each in sent), [0] * len(self._choices)
        reports: list[dict[str, Any] | None] = [None] * len(self._choices)
        try:
            async with aclosing(rest):
                item: tuple[int, Delta] | None = first
                while item is not None:
                    index, delta = item
                    completion_tokens += len(delta.tokens)
                    cached[index] += delta.cached_tokens
                    reports[index] = delta.report or reports[index]
                    chunks = [head | {"choices": [each]} for each in self._parts(index, delta)]
                    if not chunks:
                        yield COMMENT
                    for chunk in chunks:
                        if options and options.continuous_usage_stats:
                            chunk["usage"] = self._usage(cached, completion_tokens)
                        if begun and chunk is chunks[-1]:
                            sent[index] = sent[index].after([each.token for each in delta.tokens])
                            yield b"id: %s\n" % str(begun._replace(sent=tuple(sent))).encode()
                        yield sse(chunk)
                    item = await anext(rest, None)
            if options and options.include_usage:
                yield sse(
                    head
                    | {
                        "choices": [],
                        "usage": self._usage(cached, completion_tokens),
                        "metrics": self._metrics(reports),
                    }
                )
        except ForedraftError as error:
            yield sse(errors.body_of(error))
        yield DONE

    def _parts(self, index: int, delta: Delta) -> list[dict[str, Any]]:
        """Return a delta's choices, one for each chunk; tokens and the reason are in the last."""
        if not (delta.text or delta.tokens or delta.finish_reason or delta.block):
            return []
        *before, last = self._choices[index].chunks(delta)
        nothing = Delta("")
        return [self._choice(index, nothing, fields) for fields in before] + [
            self._choice(index, delta, last)
        ]

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

    def _choice(self, index: int, delta: Delta, fields: dict[str, Any]) -> dict[str, Any]:
        reason = delta.finish_reason
        written = None if reason is None else self._choices[index].finish_reason(reason)
        choice: dict[str, Any] = {"index": index, **fields, "finish_reason": written}
        if self._request.return_token_ids:
            choice["token_ids"] = [committed.token for committed in delta.tokens]
        if self._request.speculative.detail:
            choice["origins"] = [str(committed.origin) for committed in delta.tokens]
        if delta.block is not None:
            choice["block"] = self._rounds.block(delta.block)
        if self._request.speculative.rounds:
            choice["rounds"] = self._rounds.of(delta.rounds)
        return choice
