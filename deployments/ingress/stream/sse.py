"""From the orchestrator's events to completion chunks: text, finish reason, report."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from deployments.ingress.openai.report import speculation
from deployments.ingress.stream.detokenizer import TextStream
from deployments.ingress.stream.ended import Ended
from foredraft.types import Committed, FinishReason, TokenLogprobs
from orchestrator.report import DecodingMode, SpeculationReport, StatsAccumulator
from orchestrator.request import BlockEvent, StepEvent, Summary


class RoundText(NamedTuple):
    """A round, and the text that each of its tokens up to a stop released."""

    event: StepEvent
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one event adds to the answer; the last one has a finish reason and report.

    cached_tokens of the prompt had been read for another request; in the first block only. rounds
    are those that the tokens came by. block is what a diffusion target works on, if it was asked.
    """

    text: str
    tokens: tuple[Committed, ...] = ()
    finish_reason: FinishReason | None = None
    report: dict[str, Any] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0
    rounds: tuple[RoundText, ...] = ()
    block: BlockEvent | None = None


NO_NEWS = Delta("")


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
    """A whole answer, for a request that does not stream, or a part of one."""

    text: str = ""
    tokens: list[Committed] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    report: dict[str, Any] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    cached_tokens: int = 0
    rounds: list[RoundText] = field(default_factory=list)

    @property
    def delta(self) -> Delta:
        """The whole answer as one delta."""
        tokens, prompt_logprobs = tuple(self.tokens), self.prompt_logprobs
        reason, cached = self.finish_reason, self.cached_tokens
        rounds = tuple(self.rounds)
        return Delta(self.text, tokens, reason, self.report, prompt_logprobs, cached, rounds)

    def add(self, delta: Delta) -> None:
        """Append one delta."""
        self.text += delta.text
        self.tokens.extend(delta.tokens)
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.report = delta.report or self.report
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        self.cached_tokens += delta.cached_tokens
        self.rounds.extend(delta.rounds)


async def deltas(
    events: AsyncGenerator[StepEvent | BlockEvent | Summary | None],
    tokenizer: Tokenizer,
    stops: Stops,
    mode: DecodingMode,
    ended: Callable[[Ended], None],
    *,
    counts_cached: bool = True,
) -> AsyncGenerator[Delta]:
    """Yield a delta for what was committed since the last; a stop string ends it at its token.

    An event None is a delta of nothing. counts_cached is whether deltas say how much of the
    prompt had been read for others.
    ended receives what the session came to, whatever it ended by, after the last delta was taken.
    Tokens are fed one by one, so the text and the token count are the same for every block size.
    Closing this iterator closes the session.
    """
    text = TextStream(tokenizer, stops.strings, stops.min_tokens)
    rounds: list[StepEvent] = []
    start = time.monotonic()
    report: SpeculationReport | None = None
    finish: FinishReason | None = None
    first_s: float | None = None
    first_tokens = 0
    held = CompletionBuffer()
    try:
        async with aclosing(events):
            async for event in events:
                if event is None:
                    # No news, and its readers should know that it is alive.
                    yield NO_NEWS
                    continue
                if isinstance(event, BlockEvent):
                    yield Delta("", block=event)
                    continue
                if isinstance(event, Summary):
                    last = text.finish()
                    report = event.report
                    held.text += last.text
                    held.finish_reason = FinishReason.STOP if last.stopped else event.finish
                else:
                    rounds.append(event)
                    if first_s is None:
                        first_s, first_tokens = time.monotonic() - start, len(event.tokens)
                    held.cached_tokens += event.cached_tokens if counts_cached else 0
                    if _feed(held, text, event, stops):
                        report = _report(mode, rounds, time.monotonic() - start)
                        held.finish_reason = FinishReason.STOP
                    elif not event.more:
                        yield held.delta
                        held = CompletionBuffer()
                if report is not None:
                    finish = held.finish_reason
                    held.report = speculation(report)
                    yield held.delta
                    return
    finally:
        seconds = time.monotonic() - start
        report = report or _report(mode, rounds, seconds)
        cached = sum(event.cached_tokens for event in rounds)
        ended(Ended(report, finish, seconds, first_s, first_tokens, cached, rounds))


def _report(mode: DecodingMode, rounds: Sequence[StepEvent], seconds: float) -> SpeculationReport:
    """Return the report of a session that did not come to its own end."""
    stats = StatsAccumulator(mode)
    for event in rounds:
        stats.add(event.tokens, event.stats)
    return stats.report(seconds, 0, 0)


def _feed(held: CompletionBuffer, text: TextStream, event: StepEvent, stops: Stops) -> bool:
    """Add a round's text and tokens; return whether a stop string has ended the text."""
    held.prompt_logprobs = held.prompt_logprobs or event.prompt_logprobs
    pieces: list[str] = []
    stopped = False
    for committed in event.tokens:
        held.tokens.append(committed)
        # After a stop token, which is the last one, the summary comes next.
        if committed.token in stops.tokens:
            pieces.append("")
            continue
        piece = text.feed(committed.token)
        pieces.append(piece.text)
        if stopped := piece.stopped:
            break
    held.text += "".join(pieces)
    held.rounds.append(RoundText(event, tuple(pieces)))
    return stopped


def sse(body: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return (
        b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


DONE = b"data: [DONE]\n\n"
# Read over by clients; keeps what is between from ending a stream that waits.
COMMENT = b": waiting\n\n"
