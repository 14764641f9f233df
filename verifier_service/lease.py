"""Direct rounds: after a verdict the verifier asks the drafter itself and verifies its answer.

Whatever goes wrong with a drafter ends the direct rounds and nothing else: the verifier says so and
waits to be asked, as without them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from foredraft.decoding.outcomes import predict
from foredraft.decoding.prefix import extend_hash, hash_prefix
from foredraft.errors import ForedraftError, InvalidRequest
from foredraft.lease import Direct, DirectEnded, DirectFault, DirectRound, DraftSource
from foredraft.ngram.tree import text_block
from foredraft.types import Base, DraftBlock, Round, Verdict, VerifyOpen
from verifier_service.drafters import Drafters, Link

NOTHING = Direct(0, 0, 1, 1, 0)


class _DrafterFailed(Exception):
    """The drafter broke off, or answered what cannot be verified."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A round's draft, at hand or on its way, and how many tokens were asked for."""

    base: Base
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
        tell: Callable[[DirectRound | DirectEnded], Coroutine[Any, Any, None]],
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
        self._link: Link | None = None
        self._order = NOTHING
        self._left = 0
        self._stopped = False
        self._telling: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()

    @property
    def under_way(self) -> bool:
        """Whether the orchestrator has to wait for direct_ended."""
        return self._awake.is_set()

    def attach(self, source: DraftSource) -> None:
        """Ask this drafter from the next draft on."""
        self._source = source

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
            await self._told()
            self._awake.clear()
            await self._tell(DirectEnded(self._order.order, fault))

    async def close(self) -> None:
        """Tell nothing more and leave the drafter; never raises."""
        if self._telling is not None:
            self._telling.cancel()
        await self._leave()

    async def _leave(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _rounds(self) -> DirectFault:
        if not self._drafters.supported or self._source is None:
            return DirectFault.UNSUPPORTED
        try:
            asked = await self._next(None)
            while asked is not None:
                asked = await self._step(asked)
        except TimeoutError:
            return DirectFault.LATE
        except _DrafterFailed:
            await self._leave()
            return DirectFault.LOST
        return DirectFault.NONE

    async def _step(self, asked: _Asked) -> _Asked | None:
        """Finish the round whose draft was asked for; return the next one's, if there is one."""
        began = time.monotonic()
        block = await self._draft(asked)
        draft_us = int(1e6 * (time.monotonic() - began))
        request = Round(block.base, block.tokens, 1, block.parents, block.q)
        ahead = self._ask_ahead(request, block.bonus_guess)
        try:
            verdict = await self._verify(request)
        except InvalidRequest as error:
            # Refused before anything was changed; of an own round, only the draft can be at fault.
            raise _DrafterFailed from error
        self.decided(request, verdict)
        following = await self._next(ahead)
        hit = ahead is not None and ahead.base == self._base
        told = DirectRound(
            block, verdict, asked.num_tokens, self._left, draft_us, ahead is not None, hit
        )
        await self._told()
        # After the drafter, which the next round waits for.
        self._telling = asyncio.create_task(self._tell(told))
        return following

    async def _told(self) -> None:
        """Wait until the orchestrator was told of the last round, if it has not been."""
        telling, self._telling = self._telling, None
        if telling is not None:
            await telling

    async def _draft(self, asked: _Asked) -> DraftBlock:
        if isinstance(asked.answer, DraftBlock):
            return asked.answer
        try:
            async with asyncio.timeout(self._order.deadline_us / 1e6):
                return await asked.answer
        except ForedraftError as error:
            raise _DrafterFailed from error

    async def _next(self, ahead: _Asked | None) -> _Asked | None:
        """Ask for a draft of what follows the text, unless that was asked for ahead.

        None if no further round is allowed.
        """
        if self._left == 0 or self._stopped or len(self._text) >= self._end:
            return None
        self._left -= 1
        if ahead is not None and ahead.base == self._base:
            return ahead
        link = await self._linked()
        text, source, base = self._text, link.source, self._base
        count = self._wanted(len(text))
        if source.text is not None:
            block = text_block(text, base, count, source.text, self._stops)
            if block is not None:
                return _Asked(base, count, block)
        count = min(count, link.room(len(text)))
        if count <= 0:
            return _Asked(base, 0, DraftBlock(base, (), proposal=source.open.proposal))
        return _Asked(base, count, link.propose(base, text, (), count))

    def _ask_ahead(self, request: Round, bonus_guess: int) -> _Asked | None:
        """Ask for a draft of the likely outcome of a round, if that is allowed and of any use."""
        link = self._link
        if not self._order.ahead or self._left == 0 or link is None:
            return None
        for prediction in predict(request, bonus_guess):
            base = prediction.base
            count = min(self._wanted(base.prefix_len), link.room(base.prefix_len))
            if count > 0 and self._stops.isdisjoint(prediction.tokens):
                answer = link.propose(base, self._text, prediction.tokens, count)
                return _Asked(base, count, answer)
        return None

    async def _linked(self) -> Link:
        """Return the link to the drafter that was named last."""
        link, source = self._link, self._source
        assert source is not None
        if link is not None and link.source is source:
            return link
        await self._leave()
        try:
            async with asyncio.timeout(self._order.deadline_us / 1e6):
                self._link = link = await Link.open(self._drafters, source, self._text)
        except ForedraftError as error:
            raise _DrafterFailed from error
        return link

    def _wanted(self, prefix_len: int) -> int:
        """Return how many tokens a draft behind a prefix may have.

        A round commits one token more than it keeps, so the last wanted one is never drafted.
        """
        left = self._end - prefix_len - 1
        return min(self._order.num_tokens, self._opened.max_draft, left)

    @property
    def _base(self) -> Base:
        return Base(self._opened.session_id, self._round, len(self._text), self._hash)
