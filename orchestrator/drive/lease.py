"""Direct rounds as the orchestrator sees them: what a verifier may do by itself, and what it did.

The verifier fetches a round's draft from the drafter and tells of it with its verdict, so that a
round takes two messages between the services instead of four. The orchestrator commits, streams and
adapts the length as ever, one round behind; it takes back the lead by allowing no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from foredraft.lease import Direct, DirectEnded, DirectRound, DraftSource


@runtime_checkable
class Reachable(Protocol):
    """A DraftStream whose replica others can reach, too."""

    @property
    def address(self) -> str:
        """Where: "host:port"."""


@runtime_checkable
class DirectStream(Protocol):
    """A VerifyStream whose verifier can be allowed direct rounds."""

    async def attach(self, source: DraftSource) -> None:
        """Name the drafter to ask."""

    async def allow(self, direct: Direct) -> None:
        """Replace what is allowed."""

    async def next_direct(self) -> DirectRound | DirectEnded:
        """Return what the verifier tells next."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a verifier is to do by itself: drafts of this length from this drafter, so many rounds
    at least, each waiting for its draft for deadline_us microseconds; with ahead, each next draft
    asked for while a round is verified.
    """

    source: DraftSource
    length: int
    rounds: int
    deadline_us: int
    ahead: bool = False


class Lead:
    """Whether the verifier of one stream leads, and what it was told."""

    def __init__(self, stream: DirectStream) -> None:
        self._stream = stream
        self._source: DraftSource | None = None
        self._order: Order | None = None
        self._sent = 0
        self._left = 0
        self._under_way = False

    async def follow(
        self, order: Order | None, next_round: int
    ) -> DirectRound | DirectEnded | None:
        """Have an order carried out; return what the verifier tells next.

        Without an order it is asked to stop. None says that it waits to be asked. next_round is the
        number of the first round, where none is under way.
        """
        if order is not None:
            await self._say(order, next_round)
        elif not self._under_way:
            return None
        elif self._order is not None:
            self._order = None
            self._sent += 1
            await self._stream.allow(Direct(self._sent, 0, 1, 1, next_round))
        while True:
            told = await self._stream.next_direct()
            if isinstance(told, DirectRound):
                self._left = told.left
                return told
            # One that answers an older order crossed the newest on its way.
            if told.order == self._sent:
                self._under_way = False
                return told

    async def _say(self, order: Order, next_round: int) -> None:
        """Tell what has changed; renew what is allowed before it is used up."""
        if order.source is not self._source:
            await self._stream.attach(order.source)
            self._source = order.source
        if not self._under_way or order != self._order or 2 * self._left <= order.rounds:
            self._order, self._left, self._under_way = order, order.rounds, True
            self._sent += 1
            await self._stream.allow(
                Direct(
                    self._sent,
                    order.rounds,
                    order.length,
                    order.deadline_us,
                    next_round,
                    order.ahead,
                )
            )
