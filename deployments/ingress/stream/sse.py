"""From the orchestrator's events to completion chunks: text, finish reason, report."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from deployments.ingress.openai.report import speculation
from deployments.ingress.stream.detokenizer import TextStream
from foredraft.types import Committed, FinishReason, TokenLogprobs
from orchestrator.report import DecodingMode, SpeculationReport, StatsAccumulator
from orchestrator.request import StepEvent, Summary


@dataclass(frozen=True, slots=True)
class Delta:
    """What one committed block adds to the answer; the last one has a finish reason and report.

    cached_tokens of the prompt had been read for another request; in the first block only.
    """

    text: str
    tokens: tuple[Committed, ...] = ()
    finish_reason: FinishReason | None = None
    report: dict[str, Any] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Stops:
    """What ends a text: strings, looked for behind the first min_tokens tokens, and tokens.

    Neither is part of the text; a stop token is one of the answer's tokens.
    """

    strings: tuple[str, ...] = ()
    tokens: frozenset[int] = frozenset()
    min_tokens: int = 0


@dataclass(slots=True)
class CompletionBuffer:
    """A whole answer, for a request that does not stream."""

    text: str = ""
    tokens: list[Committed] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    report: dict[str, Any] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0

    @property
    def delta(self) -> Delta:
        """The whole answer as one delta."""
        tokens, prompt_logprobs = tuple(self.tokens), self.prompt_logprobs
        return Delta(self.text, tokens, self.finish_reason, self.report, prompt_logprobs)

    def add(self, delta: Delta) -> None:
        """Append one delta."""
        self.text += delta.text
        self.tokens.extend(delta.tokens)
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.report = delta.report or self.report
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        self.cached_tokens += delta.cached_tokens


async def deltas(
    events: AsyncGenerator[StepEvent | Summary],
    tokenizer: Tokenizer,
    stops: Stops,
    mode: DecodingMode,
    ended: Callable[[SpeculationReport], None],
) -> AsyncGenerator[Delta]:
    """Yield a delta for each committed block; a stop string ends the session at its token.

    ended receives the session's report, whatever it ended by, after the last delta was taken.
    Tokens are fed one by one, so the text and the token count are the same for every block size.
    Closing this iterator closes the session.
    """
    text = TextStream(tokenizer, stops.strings, stops.min_tokens)
    stats = StatsAccumulator(mode)
    start = time.monotonic()
    report: SpeculationReport | None = None
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Summary):
                    last = text.finish()
                    reason = FinishReason.STOP if last.stopped else event.finish
                    report = event.report
                    yield Delta(last.text, (), reason, speculation(report))
                    return
                stats.add(event.tokens, event.stats)
                sent = ""
                for count, committed in enumerate(event.tokens, start=1):
                    if committed.token in stops.tokens:
                        # The last one: the summary comes next.
                        continue
                    piece = text.feed(committed.token)
                    sent += piece.text
                    if piece.stopped:
                        report = stats.report(time.monotonic() - start, 0, 0)
                        yield Delta(
                            sent,
                            event.tokens[:count],
                            FinishReason.STOP,
                            speculation(report),
                            event.prompt_logprobs,
                            event.cached_tokens,
                        )
                        return
                yield Delta(
                    sent,
                    event.tokens,
                    prompt_logprobs=event.prompt_logprobs,
                    cached_tokens=event.cached_tokens,
                )
    finally:
        ended(report or stats.report(time.monotonic() - start, 0, 0))


def sse(body: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return (
        b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


DONE = b"data: [DONE]\n\n"
