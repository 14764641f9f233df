"""Verifier-led rounds: while it holds a lease, the verifier asks the drafter itself.

Whatever goes wrong with a drafter ends the lease and nothing else: the verifier reports it, and
then waits for the orchestrator's rounds. What is requested is the planner's business, here is the
I/O.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from foredraft.decoding.committed_prefix import CommittedPrefix
from foredraft.decoding.draft_planner import DraftPlanner, DraftRequest, NgramDraft
from foredraft.decoding.outcomes import Purchases, predict
from foredraft.errors import ForedraftError, InvalidRequest
from foredraft.lease import DraftSource, Grant, LeaseEnded, LeaseFault, LedRound
from foredraft.limits import MAX_PLAIN_STEPS
from foredraft.messages import DraftBlock, Round, Verdict, VerifyOpen
from foredraft.types import Base, Guess
from verifier_service.drafters import (
    Drafters,
    DraftsAhead,
    FeaturesLost,
    Link,
    RequestedDraft,
    UnsentFeatures,
)
from verifier_service.linked_drafter import DrafterFailed, LinkedDrafter, NoDrafter
from verifier_service.targets.pending import NextPlain

NO_GRANT = Grant(0, 0, 1, 1, 0)

_Draft = RequestedDraft | DraftsAhead


# What ends a lease before its rounds are used up.
_FAULTS = (TimeoutError, FeaturesLost, DrafterFailed, NoDrafter)


class Lease:
    """One session's lease: `run` is its task, which lasts until it is cancelled.

    verify decides a round, and begins the plain one that follows; report sends a message to the
    orchestrator.
    """

    def __init__(
        self,
        opened: VerifyOpen,
        drafters: Drafters,
        verify: Callable[[Round, NextPlain | None], Awaitable[Verdict]],
        report: Callable[[LedRound | LeaseEnded], Coroutine[Any, Any, None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._verify = verify
        self._report = report
        self._clock = clock
        self._prefix = CommittedPrefix(opened.prefix)
        self._features = UnsentFeatures(opened)
        self._drafter = LinkedDrafter(drafters, self._prefix, self._features.check, clock)
        self._purchases = Purchases()
        self._end = len(opened.prefix) + opened.max_new_tokens
        self._stop_ids = frozenset(opened.stop_token_ids)
        self._stopped = False
        self._round = 0
        self._grant = NO_GRANT
        self._rounds_left = 0
        # The round after the one under way, where that may be begun before it is asked for.
        self._following: NextPlain | None = None
        self._granted = asyncio.Event()
        self._reporting: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        """Whether the orchestrator has to wait for LeaseEnded."""
        return self._granted.is_set()

    def use_drafter(self, source: DraftSource) -> None:
        """Ask this drafter from the next draft on; before that it reads the text meanwhile."""
        self._drafter.use(source)
        if not self.active or self._grant.plain_passes:
            self._drafter.open_early(self._have_read)

    def grant(self, grant: Grant) -> None:
        """Replace the rest of the lease, or start one."""
        if not self.active:
            self._round = grant.round
        self._grant, self._rounds_left = grant, grant.rounds
        if self._following is not None:
            self._following.wanted = self._grants_plain(self._following.passes)
        self._granted.set()

    def decided(self, request: Round, verdict: Verdict) -> None:
        """Commit a verdict's tokens, unless it repeats an earlier one."""
        if request.base.prefix_len != len(self._prefix):
            return
        tokens = [*(request.draft[node] for node in verdict.kept), *verdict.next_tokens]
        self._prefix.extend(tokens)
        bought = len(request.draft) - verdict.left_out
        self._purchases = self._purchases.after(request, bought)
        if request.no_features:
            self._features.end()
        # Of the newest token there are none: it was not read yet.
        self._features.decided(verdict.features, len(self._prefix) - 1)
        self._stopped = not self._stop_ids.isdisjoint(tokens)
        self._round = request.base.round + 1

    async def run(self) -> None:
        """Lead rounds whenever a lease is granted; raise what the verifier itself fails with."""
        while True:
            await self._granted.wait()
            fault = await self._lead()
            await self._reported()
            self._granted.clear()
            await self._report(LeaseEnded(self._grant.seq, fault))

    async def close(self) -> None:
        """Report nothing more and leave the drafter; never raises."""
        if self._reporting is not None:
            self._reporting.cancel()
        await self._drafter.close()

    async def _lead(self) -> LeaseFault:
        try:
            draft = await self._next_draft(None)
            while draft is not None:
                draft = await self._round_of(draft)
        except TimeoutError:
            return LeaseFault.LATE
        except (NoDrafter, FeaturesLost):
            await self._drafter.leave()
            return LeaseFault.UNSUPPORTED
        except DrafterFailed:
            await self._drafter.leave()
            return LeaseFault.LOST
        return LeaseFault.NONE

    async def _round_of(self, pending: _Draft) -> _Draft | None:
        """Finish the round of a draft; return the next one's, if there is one."""
        began = self._clock()
        draft, block = await self._arrived(pending)
        draft_us = int(1e6 * (self._clock() - began))
        request = self._asked(block)
        ahead = self._run_ahead(request, block.guesses)
        passes = request.plain_passes
        self._following = NextPlain(passes, self._grants_plain(passes)) if passes else None
        try:
            verdict = await self._verify(request, self._following)
        except InvalidRequest as error:
            # Refused before anything was changed; of an own round, only the draft can be at fault.
            raise DrafterFailed from error
        self.decided(request, verdict)
        hit = ahead is not None and self._base in ahead.bases
        led = LedRound(block, verdict, draft.k, 0, draft_us, ahead is not None, hit)
        try:
            following = await self._next_draft(ahead)
        except _FAULTS:
            # The round was decided, whatever comes of the next one.
            await self._tell(led)
            raise
        # After the drafter, which the next round waits for.
        await self._tell(led)
        return following

    async def _tell(self, led: LedRound) -> None:
        """Start to report a round, once the last one was."""
        await self._reported()
        led = replace(led, rounds_left=self._rounds_left)
        self._reporting = asyncio.create_task(self._report(led))

    def _asked(self, block: DraftBlock) -> Round:
        """Return the round of a draft; without one, or its tokens, a plain one."""
        if block.tokens:
            return Round(block.base, block.tokens, 1, block.parents, block.q, block.expected)
        steps = min(MAX_PLAIN_STEPS, self._end - len(self._prefix))
        # Where a draft was wanted, the next one is not far.
        passes = self._begun or self._grant.plain_passes or 1
        return Round(block.base, (), steps, plain_passes=passes)

    def _grants_plain(self, passes: int) -> bool:
        """Whether another plain round of so many passes is granted."""
        return self._rounds_left > 0 and self._grant.plain_passes == passes

    @property
    def _begun(self) -> int:
        """The passes of the plain round that the engine has begun by itself, 0 if it has not."""
        following = self._following
        return following.passes if following is not None and following.begun else 0

    async def _reported(self) -> None:
        """Wait until the last round was reported, if it has not been."""
        reporting, self._reporting = self._reporting, None
        if reporting is not None:
            await reporting

    async def _arrived(self, draft: _Draft) -> tuple[RequestedDraft, DraftBlock]:
        """Return a draft's block, and the draft; another one where it was not made ahead."""
        try:
            async with asyncio.timeout(self._patience_s):
                if isinstance(draft, DraftsAhead):
                    block = await draft.block(self._base)
                    if block is not None:
                        return RequestedDraft(self._base, draft.k, block), block
                    draft = await self._request()
                if isinstance(draft.answer, DraftBlock):
                    return draft, draft.answer
                return draft, await draft.answer
        except ForedraftError as error:
            raise DrafterFailed from error

    async def _next_draft(self, ahead: DraftsAhead | None) -> _Draft | None:
        """Return the next round's draft, at hand or requested now unless it was ahead.

        None if no further round is granted.
        """
        if self._begun:
            self._rounds_left = max(0, self._rounds_left - 1)
            return RequestedDraft(self._base, 0, DraftBlock(self._base, ()))
        if self._rounds_left == 0 or self._stopped or len(self._prefix) >= self._end:
            return None
        self._rounds_left -= 1
        if ahead is not None and self._base in ahead.bases:
            return ahead
        return await self._request()

    async def _request(self) -> RequestedDraft:
        """Return the draft after the prefix, at hand or requested now; an empty one where the
        round is to be plain.
        """
        base = self._base
        if self._grant.plain_passes or self._drafter.is_opening(self._patience_s):
            return RequestedDraft(base, 0, DraftBlock(base, ()))
        link = await self._drafter.linked(self._patience_s)
        planned = self._planner(link).next(self._grant.num_draft_tokens)
        if isinstance(planned, NgramDraft):
            return RequestedDraft(base, *planned)
        features = b"" if planned is None else self._unsent(link)
        if planned is None or features is None:
            return RequestedDraft(base, 0, DraftBlock(base, (), proposal=link.source.open.proposal))
        return link.send(planned, features)

    def _unsent(self, link: Link) -> bytes | None:
        """Return the features that go with the next request, None if they are not known yet."""
        return self._features.take(len(self._prefix)) if link.features else b""

    def _run_ahead(self, request: Round, guesses: Sequence[Guess]) -> DraftsAhead | None:
        """Request drafts of the round's predicted outcomes, if that is granted and of any use."""
        link = self._drafter.link
        if not self._grant.run_ahead or self._rounds_left == 0 or link is None or link.features:
            # Predicted tokens have no features yet.
            return None
        bought = self._purchases.bought(request)
        outcomes = predict(request, guesses[: link.outcomes], bought)
        planned = self._planner(link).after(outcomes, self._grant.num_draft_tokens)
        return None if planned is None else link.send_ahead(planned)

    def _have_read(self, link: Link) -> None:
        """Have a drafter read the text, by a draft that nobody awaits."""
        planned = None if link.features else self._planner(link).next(1)
        if isinstance(planned, DraftRequest):
            link.send(planned, b"")

    @property
    def _patience_s(self) -> float:
        """How long a round waits for its draft, and for its drafter."""
        return self._grant.deadline_us / 1e6

    def _planner(self, link: Link) -> DraftPlanner:
        return DraftPlanner(
            self._prefix.tokens,
            self._base,
            self._end,
            self._stop_ids,
            link.view,
            link.source.ngram,
            self._opened.max_draft,
        )

    @property
    def _base(self) -> Base:
        return self._prefix.base(self._opened.session_id, self._round)
