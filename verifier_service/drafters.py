"""The drafters that a verifier asks itself: ports, a client for each address, a session's link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from foredraft.decoding.draft_planner import DrafterRequests
from foredraft.decoding.drafter_view import DrafterView
from foredraft.errors import Unavailable
from foredraft.lease import DraftSource
from foredraft.types import Base, DraftBlock, DraftOpen, DraftOpened, Propose


class DraftStream(Protocol):
    """A session on a drafter."""

    @property
    def opened(self) -> DraftOpened:
        """What the drafter said of itself."""

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the block for request.base; cancelling leaves the stream usable."""

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


class Drafters:
    """The drafter replicas that sessions named; those of one address share a client.

    Without `connect`, which makes a client of an address, none can be asked.
    """

    def __init__(self, connect: Connect | None = None) -> None:
        self._connect = connect
        self._clients: dict[str, DraftClient] = {}

    @property
    def supported(self) -> bool:
        """Whether drafters can be asked."""
        return self._connect is not None

    async def open(self, address: str, request: DraftOpen) -> DraftStream:
        """Open a session at an address."""
        assert self._connect is not None
        client = self._clients.get(address)
        if client is None:
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


@dataclass(frozen=True, slots=True)
class RequestedDraft:
    """A draft after base, at hand or on its way, of the k tokens that were requested at most."""

    base: Base
    k: int
    answer: DraftBlock | asyncio.Task[DraftBlock]


class Link:
    """A session's stream to its drafter, and the drafter's view of the prefix."""

    def __init__(self, source: DraftSource, stream: DraftStream, prefix_len: int) -> None:
        self.source = source
        self.view = DrafterView(stream.opened, prefix_len)
        self._stream = stream

    @classmethod
    async def open(cls, drafters: Drafters, source: DraftSource, prefix: Sequence[int]) -> Link:
        """Open the source's session after a prefix."""
        opening = replace(source.open, prefix=tuple(prefix))
        return cls(source, await drafters.open(source.address, opening), len(prefix))

    def send(self, planned: DrafterRequests) -> list[RequestedDraft]:
        """Send requests and return their drafts, in their order."""
        self.view = planned.view
        return [
            RequestedDraft(request.base, request.num_tokens, self._answer(request))
            for request in planned.requests
        ]

    async def close(self) -> None:
        """End the session there; never raises."""
        await self._stream.close()

    def _answer(self, request: Propose) -> asyncio.Task[DraftBlock]:
        answer = asyncio.create_task(self._stream.propose(request))
        # After a wrong prediction nothing awaits it.
        answer.add_done_callback(lambda task: task.cancelled() or task.exception())
        return answer
