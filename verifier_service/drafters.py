"""The drafters that a verifier asks itself: ports, a client for each address, a session's link."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

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


class Link:
    """A session's stream to its drafter, which is told what is new of the text."""

    def __init__(self, source: DraftSource, stream: DraftStream, prefix_len: int) -> None:
        self.source = source
        self._stream = stream
        self._view = DrafterView(stream.opened, prefix_len)

    @classmethod
    async def open(cls, drafters: Drafters, source: DraftSource, text: Sequence[int]) -> Link:
        """Open the source's session behind a text."""
        opening = replace(source.open, prefix=tuple(text))
        return cls(source, await drafters.open(source.address, opening), len(text))

    def room(self, prefix_len: int) -> int:
        """Return the largest block, in tokens, that can follow a prefix; 0 or less is none."""
        return self._view.room(prefix_len)

    def propose(
        self, base: Base, text: Sequence[int], tail: tuple[int, ...], num_tokens: int
    ) -> asyncio.Task[DraftBlock]:
        """Ask for what follows a text and a tail that was predicted behind it."""
        keep_len, append, self._view = self._view.name(text, tail)
        asked = self._stream.propose(Propose(base, keep_len, append, num_tokens))
        answer = asyncio.create_task(asked)
        # Nobody may be left to ask for it: a prediction that came out wrong.
        answer.add_done_callback(lambda task: task.cancelled() or task.exception())
        return answer

    async def close(self) -> None:
        """End the session there; never raises."""
        await self._stream.close()
