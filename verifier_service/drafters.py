"""The drafters that a verifier asks itself: ports, a client for each address, a session's link."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from foredraft.decoding.draft_planner import AheadRequest, DraftRequest
from foredraft.decoding.drafter_view import DrafterView
from foredraft.decoding.outcomes import outcomes_of
from foredraft.errors import InvalidRequest, Unavailable
from foredraft.lease import DraftSource
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead, VerifyOpen
from foredraft.types import Base

# Bytes of a session.
_MOST_UNSENT = 1 << 24
# Outcomes that a drafter without room for any is still asked for.
_LEAST_OUTCOMES = 4


class DraftStream(Protocol):
    """A session on a drafter."""

    @property
    def opened(self) -> DraftOpened:
        """The drafter's description of itself."""

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the block for request.base; cancelling leaves the stream usable."""

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        """Return the blocks for outcomes, fewer or none if the drafter has no room for more."""

    async def close(self) -> None:
        """End the session; never raises."""


class DraftClient(Protocol):
    """One drafter replica."""

    async def open(self, request: DraftOpen) -> DraftStream:
        """Open a session."""

    async def close(self) -> None:
        """End all its sessions."""

    def retire(self) -> None:
        """Take no new sessions; the channel ends with the last one."""


Connect = Callable[[str], DraftClient]
# Whether a drafter at an address may be asked.
Permits = Callable[[str], Awaitable[bool]]


async def anybody(_: str) -> bool:
    """Permit every address."""
    return True


T = TypeVar("T")


class Drafters:
    """The drafter replicas that sessions named; those of one address share a client.

    Without `connect`, which makes a client of an address, none can be asked.
    """

    def __init__(self, connect: Connect | None = None, permits: Permits = anybody) -> None:
        self._connect, self._permits = connect, permits
        self._clients: dict[str, DraftClient] = {}

    @property
    def supported(self) -> bool:
        """Whether drafters can be asked."""
        return self._connect is not None

    async def open(self, address: str, request: DraftOpen) -> DraftStream:
        """Open a session at an address; raise InvalidRequest where no permitted drafter is.

        A session that could name any address would make a port scanner of this verifier.
        """
        assert self._connect is not None
        client = self._clients.get(address)
        if client is None:
            if not await self._permits(address):
                raise InvalidRequest("no drafter of this cluster is there", param="address")
            client = self._clients[address] = self._connect(address)
        try:
            return await client.open(request)
        except Unavailable:
            if self._clients.get(address) is client:
                del self._clients[address]
            client.retire()
            raise

    async def close(self) -> None:
        """Close every client."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


class FeaturesLost(Exception):
    """The drafter reads features that the verifier does not have, or has no longer."""


class UnsentFeatures:
    """A session's features that its drafter was not sent yet.

    They go to one drafter, once: only the orchestrator keeps them all. If no drafter takes them,
    what exceeds _MOST_UNSENT is dropped, and with it the possibility of led rounds.
    """

    def __init__(self, opened: VerifyOpen) -> None:
        self._name = opened.features_hash
        # Of this many first tokens they were sent, or are elsewhere.
        self._begin = self._end = opened.features_from
        self._data = bytearray()
        self._dropped = False

    def decided(self, data: bytes, end: int) -> None:
        """Take a verdict's features; with them those of `end` tokens are known."""
        if not self._name or self._dropped:
            return
        self._data += data
        self._end = end
        if len(self._data) > _MOST_UNSENT:
            self._data.clear()
            self._dropped = True

    def end(self) -> None:
        """Take note that the verifier computes none from here on."""
        self._data.clear()
        self._dropped = True

    def check(self, name: str) -> None:
        """Raise FeaturesLost unless a drafter that was sent nothing can be given all of these."""
        if name and (name != self._name or self._begin > 0 or self._dropped):
            raise FeaturesLost

    def take(self, prefix_len: int) -> bytes | None:
        """Return what was not sent, for a draft after a prefix; None if more is needed.

        What is returned counts as sent. Raise FeaturesLost if it was dropped.
        """
        if self._dropped:
            raise FeaturesLost
        if self._end < prefix_len - 1:
            return None
        data = bytes(self._data)
        self._data.clear()
        self._begin = self._end
        return data


@dataclass(frozen=True, slots=True)
class RequestedDraft:
    """A draft after base, at hand or on its way, of the k tokens that were requested at most."""

    base: Base
    k: int
    answer: DraftBlock | asyncio.Task[DraftBlock]


@dataclass(frozen=True, slots=True)
class DraftsAhead:
    """Drafts on their way for the outcomes of a round, named by their bases."""

    k: int
    bases: frozenset[Base]
    answer: asyncio.Task[tuple[DraftBlock, ...]]

    async def block(self, base: Base) -> DraftBlock | None:
        """Return the draft after base, None if the drafter made none."""
        return next((block for block in await self.answer if block.base == base), None)


class Link:
    """A session's stream to its drafter, and the drafter's view of the prefix.

    outcomes is how many predicted outcomes are worth naming: as many as the drafter made blocks for
    the last time, and twice as many once it made all. With many sessions it has room for few.
    """

    def __init__(self, source: DraftSource, stream: DraftStream, prefix_len: int) -> None:
        self.source = source
        self.outcomes = source.open.num_guesses
        self.features = stream.opened.model.features_hash
        self.view = DrafterView(stream.opened, prefix_len)
        self._stream = stream

    @classmethod
    async def open(cls, drafters: Drafters, source: DraftSource, prefix: Sequence[int]) -> Link:
        """Open the source's session after a prefix, which may grow meanwhile."""
        opening = replace(source.open, prefix=tuple(prefix))
        stream = await drafters.open(source.address, opening)
        return cls(source, stream, len(opening.prefix))

    def send(self, planned: DraftRequest, features: bytes) -> RequestedDraft:
        """Send a request with its features and return its draft."""
        self.view = planned.view
        request = replace(planned.request, features=features)
        answer = _unawaited(self._stream.propose(request))
        return RequestedDraft(request.base, request.num_tokens, answer)

    def send_ahead(self, planned: AheadRequest) -> DraftsAhead:
        """Send a request for predicted outcomes and return its drafts."""
        self.view = planned.view
        request = planned.request
        bases = frozenset(each.base for each in outcomes_of(request))
        answer = _unawaited(self._stream.propose_ahead(request))
        answer.add_done_callback(partial(self._made, len(bases)))
        return DraftsAhead(request.num_tokens, bases, answer)

    def _made(self, named: int, answer: asyncio.Task[tuple[DraftBlock, ...]]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        made = len(answer.result())
        most = self.source.open.num_guesses
        self.outcomes = min(most, max(_LEAST_OUTCOMES, 2 * made if made == named else made))

    async def close(self) -> None:
        """End the session there; never raises."""
        await self._stream.close()


def _unawaited(answer: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start what nothing may come to await: after a wrong prediction, or with the lease's end."""
    task = asyncio.create_task(answer)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task
