"""Which side leads a session's rounds: decided here, and nowhere else.

The orchestrator leads, unless it has granted the verifier a lease of some rounds. While the lease
is active the verifier asks the drafter itself, or decodes plainly, and reports each round with its
verdict: the orchestrator commits, streams and adapts the draft length as ever, one round later. It
renews the lease before it is used up, and ends it with a grant of no rounds. docs/protocol.md has
the sequence.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Protocol, runtime_checkable

from foredraft.errors import ForedraftError
from foredraft.lease import DraftSource, Grant, LeaseEnded, LeaseFault, LedRound
from foredraft.limits import MAX_DEADLINE_US, is_address
from foredraft.messages import DraftOpen
from orchestrator.config import OrchestratorConfig
from orchestrator.session.session import Session

# Drafters that a verifier could not use, one after the other, before it is granted no more.
MAX_LOST = 2
# Ends a lease.
_NO_ROUNDS = Grant(0, 0, 1, 1, 0)


@runtime_checkable
class Reachable(Protocol):
    """A DraftStream whose replica others can reach, too."""

    @property
    def address(self) -> str:
        """Where: "host:port"."""


@runtime_checkable
class LeaseStream(Protocol):
    """A VerifyStream whose verifier takes leases."""

    async def use_drafter(self, source: DraftSource) -> None:
        """Name the drafter that led rounds are to ask."""

    async def grant(self, grant: Grant) -> None:
        """Start a lease, or replace the rest of the active one."""

    async def next_led(self) -> LedRound | LeaseEnded:
        """Return the next led round, or the lease's end."""


class LeaseClient:
    """The leases of one session, on one verifier's stream after the other."""

    def __init__(self, session: Session, config: OrchestratorConfig) -> None:
        self._session = session
        self._rounds = config.verifier_led_rounds
        self._deadline_us = min(max(1, int(1000 * config.draft_deadline_ms)), MAX_DEADLINE_US)
        self._ngram = config.ngram.params
        # The drafter as a verifier can ask it; None if only the orchestrator can.
        self._source: DraftSource | None = None
        self._stream: LeaseStream | None = None
        # Of the stream: the drafter it was named, its newest grant, and what is left of that.
        self._named: DraftSource | None = None
        self._granted: Grant | None = None
        self._rounds_left = 0
        self._active = False
        # The round after a lease is the orchestrator's.
        self._own_round_due = False
        self._lost = 0

    # Peers.

    def verifier_opened(self, stream: object) -> None:
        """Take note of the verifier's stream: no lease is active on it."""
        self._stream = stream if isinstance(stream, LeaseStream) else None
        self._named = self._granted = None
        self._active = False

    def verifier_closed(self) -> None:
        """Take note that the verifier is lost or left, and with it the lease."""
        self._stream, self._active = None, False

    def drafter_opened(self, stream: object, opening: DraftOpen) -> None:
        """Take note of the drafter's stream and of what it was opened with."""
        address = stream.address if isinstance(stream, Reachable) else ""
        if self._rounds > 0 and self._lost < MAX_LOST and is_address(address):
            self._source = DraftSource(address, replace(opening, prefix=()), self._ngram)

    def drafter_closed(self) -> None:
        """Take note that the drafter is lost or left."""
        self._source = None

    # Rounds.

    @property
    def covers_drafts(self) -> bool:
        """Whether drafts are the verifier's to ask for, so that the orchestrator asks for none."""
        return self._source is not None and self._session.allows_lease

    async def name_drafter(self) -> None:
        """Name the drafter before the first lease: it reads the text while the verifier does."""
        stream, source = self._stream, self._source
        useful = self.covers_drafts and not self._session.reads_features
        if stream is not None and source is not None and useful:
            # A verifier that is lost is found to be in its next round.
            with suppress(ForedraftError):
                await self._name(stream, source)

    def drafts(self, k: int, run_ahead: bool) -> Grant | None:
        """Return a grant of rounds with drafts of up to k tokens, with run_ahead requested while
        one is verified; None where drafts are the orchestrator's to ask for.
        """
        if not self.covers_drafts:
            return None
        return Grant(0, self._rounds, k, self._deadline_us, 0, run_ahead)

    def plain(self, passes: int) -> Grant:
        """Return a grant of plain rounds of so many passes."""
        return replace(_NO_ROUNDS, rounds=self._rounds, plain_passes=passes)

    async def next_led(self, grant: Grant | None) -> LedRound | LeaseEnded | None:
        """Return the next round if the verifier leads it; None if it is the orchestrator's.

        It leads rounds as granted. Without a grant the next round is to be the orchestrator's: the
        rounds of the lease that are still under way come first, then its end.
        """
        stream = self._stream
        if stream is None:
            return None
        if grant is not None and grant.rounds > 0 and not self._own_round_due:
            if not grant.plain_passes and self._source is not None:
                await self._name(stream, self._source)
            await self._keep_granted(stream, grant)
        elif not self._active:
            return None
        elif self._granted is not None and self._granted.rounds > 0:
            await self._grant(stream, _NO_ROUNDS)
        while True:
            answer = await stream.next_led()
            if isinstance(answer, LedRound):
                self._rounds_left = answer.rounds_left
                if answer.num_draft_tokens:
                    self._lost = 0
                return answer
            # An end that names an older grant crossed the newest one on its way: that holds.
            if self._granted is not None and answer.seq == self._granted.seq:
                self._ended(answer.fault)
                return answer

    def own_round_done(self) -> None:
        """Take note that the orchestrator led a round: a lease may follow."""
        self._own_round_due = False

    def _ended(self, fault: LeaseFault) -> None:
        self._active, self._own_round_due = False, True
        if fault is LeaseFault.LOST:
            # Not the drafter's fault, perhaps, but of the way to it.
            self._lost += 1
        elif fault is LeaseFault.UNSUPPORTED:
            # It asks no drafters, but may decode plainly by itself.
            self._lost, self._source = MAX_LOST, None
            if self._granted is not None and self._granted.plain_passes:
                self._rounds = 0

    async def _keep_granted(self, stream: LeaseStream, grant: Grant) -> None:
        """Grant what has changed; renew the lease when half of it is used up."""
        old = self._granted if self._active else None
        same = old is not None and replace(old, seq=0, round=0) == grant
        if not same or 2 * self._rounds_left <= grant.rounds:
            await self._grant(stream, grant)

    async def _name(self, stream: LeaseStream, source: DraftSource) -> None:
        if source is not self._named:
            self._named = source
            await stream.use_drafter(source)

    async def _grant(self, stream: LeaseStream, grant: Grant) -> None:
        seq = self._granted.seq + 1 if self._granted else 1
        self._granted = replace(grant, seq=seq, round=self._session.base.round)
        self._rounds_left, self._active = grant.rounds, True
        await stream.grant(self._granted)
