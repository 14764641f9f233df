"""Streams that go on where they were cut: the id of an event has what was sent up to it.

The same request with the same seed returns the same tokens, so whoever lost a stream sends the
request again with the last id that it saw: what the id stands for is decoded again and not sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from deployments.ingress.stream.cadence import Item, single
from deployments.ingress.stream.sse import Delta
from foredraft.decoding.prefix import EMPTY_PREFIX_HASH, extend_hash
from foredraft.errors import InvalidRequest

FIELD = "Last-Event-ID"
_ID = re.compile(r"(\d{1,20})((?:-\d{1,7}\.[0-9a-f]{16}){1,64})")


class Sent(NamedTuple):
    """How many of an answer's tokens were sent, and their chained hash."""

    tokens: int = 0
    digest: int = EMPTY_PREFIX_HASH

    def after(self, tokens: Sequence[int]) -> Sent:
        """Return what is sent with more tokens."""
        return Sent(self.tokens + len(tokens), extend_hash(self.digest, tokens))


class EventId(NamedTuple):
    """The seed of a request's first answer, and what was sent of each."""

    seed: int
    sent: tuple[Sent, ...]

    def __str__(self) -> str:
        return f"{self.seed}" + "".join(f"-{each.tokens}.{each.digest:016x}" for each in self.sent)


def read_id(text: str, answers: int) -> EventId:
    """Return the id that a client saw of a stream of so many answers; raise InvalidRequest."""
    found = _ID.fullmatch(text)
    if found is None or int(found[1]) >= 1 << 64:
        raise InvalidRequest(f"{FIELD} is no id of this server's events", param=FIELD)
    parts = [each.partition(".") for each in found[2].split("-")[1:]]
    if len(parts) != answers:
        raise InvalidRequest(f"{FIELD} is of a request with {len(parts)} answers", param=FIELD)
    return EventId(int(found[1]), tuple(Sent(int(n), int(h, 16)) for n, _, h in parts))


class Writer(Protocol):
    """Writes an answer's chunks, each as what came before it asks."""

    def chunks(self, delta: Delta) -> object:
        """Return what would be sent of a delta."""


async def resumed(
    stream: AsyncGenerator[Item], sent: Sequence[Sent], writers: Sequence[Writer]
) -> AsyncGenerator[Item]:
    """Yield a stream without what was sent of it, which the writers are given all the same.

    Raise InvalidRequest where the answers are others than those that were begun.
    """
    again = [Sent()] * len(sent)
    async with aclosing(stream):
        async for index, delta in stream:
            # Deltas of one token each where a part of them was sent.
            for one in single(delta) if again[index].tokens < sent[index].tokens else (delta,):
                if again[index].tokens >= sent[index].tokens:
                    yield index, one
                    continue
                again[index] = again[index].after([each.token for each in one.tokens])
                _check(again[index], sent[index], ended=one.finish_reason is not None)
                writers[index].chunks(one)
                if one.finish_reason is not None:
                    yield index, Delta("", finish_reason=one.finish_reason, report=one.report)


def _check(again: Sent, sent: Sent, *, ended: bool) -> None:
    short = again.tokens < sent.tokens
    if (short and ended) or (not short and again != sent):
        raise InvalidRequest(
            f"{FIELD}: the stream cannot go on: this request has other tokens than the one that "
            "was begun",
            param=FIELD,
        )
