"""Direct rounds: after a verdict the verifier asks the drafter itself and verifies its answer.

Whatever goes wrong with a drafter ends the direct rounds and nothing else: the verifier says so and
waits to be asked, as without them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from foredraft.direct import Direct, DirectEnded, DirectFault, DirectRound, DraftSource
from foredraft.errors import ForedraftError, InvalidRequest, Unavailable
from foredraft.prefix import extend_hash, hash_prefix
from foredraft.text_tree import text_block
from foredraft.types import (
    Base,
    DraftBlock,
    DraftOpen,
    DraftOpened,
    Propose,
    Round,
    Verdict,
    VerifyOpen,
)

NOTHING = Direct(0, 0, 1, 1, 0)


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
            await client.close()
            raise

    async def close(self) -> None:
        """Close every client."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


class _DrafterFailed(Exception):
    """The drafter broke off, or answered what cannot be verified."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A round's draft, at hand or on its way, and how many tokens were asked for."""

    num_tokens: int
    answer: DraftBlock | asyncio.Task[DraftBlock]


class DirectRounds:
    """One session's direct rounds: `run` is its task, which lasts until it is cancelled.

    verify decides a round; tell sends a message to the orchestrator.
    """

    def __init__(
        self,
        opened: VerifyOpen,
        drafters: Drafters,
        verify: Callable[[Round], Awaitable[Verdict]],
        tell: Callable[[DirectRound | DirectEnded], Awaitable[None]],
    ) -> None:
        self._opened = opened
        self._drafters = drafters
        self._verify = verify
        self._tell = tell
        self._text = list(opened.prefix)
        self._hash = hash_prefix(opened.prefix)
        self._end = len(opened.prefix) + opened.max_new_tokens
        self._stops = frozenset(opened.stop_token_ids)
        self._round = 0
        self._source: DraftSource | None = None
        self._stream: DraftStream | None = None
        self._told = 0
        self._order = NOTHING
        self._left = 0
        self._stopped = False
        self._awake = asyncio.Event()

    @property
    def under_way(self) -> bool:
        """Whether the orchestrator has to wait for direct_ended."""
        return self._awake.is_set()

    async def attach(self, source: DraftSource) -> None:
        """Ask this drafter from now on."""
        self._source = source
        await self.close()

    def allow(self, direct: Direct) -> None:
        """Replace what is allowed; start if nothing is under way."""
        if not self.under_way:
            self._round = direct.round
        self._order, self._left = direct, direct.rounds
        self._awake.set()

    def decided(self, request: Round, verdict: Verdict) -> None:
        """Take note of a verdict, unless it repeats an earlier one."""
        if request.base.prefix_len != len(self._text):
            return
        tokens = [*(request.draft[node] for node in verdict.kept), *verdict.next_tokens]
        self._text += tokens
        self._hash = extend_hash(self._hash, tokens)
        self._stopped = not self._stops.isdisjoint(tokens)
        self._round = request.base.round + 1

    async def run(self) -> None:
        """Do what is allowed, whenever something is; raise what the verifier itself fails with."""
        while True:
            await self._awake.wait()
            fault = await self._rounds()
            self._awake.clear()
            await self._tell(DirectEnded(self._order.order, fault))

    async def close(self) -> None:
        """Leave the drafter; never raises."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def _rounds(self) -> DirectFault:
        if not self._drafters.supported or self._source is None:
            return DirectFault.UNSUPPORTED
        try:
            if self._stream is None and self._left:
                await self._open(self._source)
            asked = self._ask()
            while asked is not None:
                asked = await self._step(asked)
        except TimeoutError:
            return DirectFault.LATE
        except _DrafterFailed:
            await self.close()
            return DirectFault.LOST
        return DirectFault.NONE

    async def _open(self, source: DraftSource) -> None:
        opening = replace(source.open, prefix=tuple(self._text))
        try:
            async with asyncio.timeout(self._order.deadline_us / 1e6):
                self._stream = await self._drafters.open(source.address, opening)
        except ForedraftError as error:
            raise _DrafterFailed from error
        self._told = len(self._text)

    async def _step(self, asked: _Asked) -> _Asked | None:
        """Finish the round whose draft was asked for; return the next one's, if there is one."""
        began = time.monotonic()
        block = await self._draft(asked)
        draft_us = int(1e6 * (time.monotonic() - began))
        request = Round(block.base, block.tokens, 1, block.parents, block.q)
        try:
            verdict = await self._verify(request)
        except InvalidRequest as error:
            # Refused before anything was changed; of an own round, only the draft can be at fault.
            raise _DrafterFailed from error
        self.decided(request, verdict)
        following = self._ask()
        if following is not None:
            # The drafter hears of the verdict first: the next round waits for it.
            await asyncio.sleep(0)
        await self._tell(DirectRound(block, verdict, asked.num_tokens, self._left, draft_us))
        return following

    async def _draft(self, asked: _Asked) -> DraftBlock:
        if isinstance(asked.answer, DraftBlock):
            return asked.answer
        try:
            async with asyncio.timeout(self._order.deadline_us / 1e6):
                return await asked.answer
        except ForedraftError as error:
            raise _DrafterFailed from error

    def _ask(self) -> _Asked | None:
        """Ask for a draft of what follows the text; None if no further round is allowed."""
        if self._left == 0 or self._stopped or len(self._text) >= self._end:
            return None
        self._left -= 1
        text, source, stream = self._text, self._source, self._stream
        assert source is not None and stream is not None
        base = Base(self._opened.session_id, self._round, len(text), self._hash)
        # A round commits one token more than it keeps, so the last wanted one is never drafted.
        count = min(self._order.num_tokens, self._opened.max_draft, self._end - len(text) - 1)
        if source.text is not None:
            block = text_block(text, base, count, source.text, self._stops)
            if block is not None:
                return _Asked(count, block)
        count = min(count, stream.opened.max_block, stream.opened.model.max_len - len(text))
        if count <= 0:
            return _Asked(0, DraftBlock(base, (), proposal=source.open.proposal))
        request = Propose(base, self._told, tuple(text[self._told :]), count)
        self._told = len(text)
        return _Asked(count, asyncio.create_task(stream.propose(request)))
