"""A session's drafter: attached in the background, asked ahead of time, never waited for long.

Nothing that a drafter does or fails to do ends a request: without a draft a round is plain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest, TensorLost
from foredraft.lease import Grant, LeaseFault
from foredraft.messages import Propose, ProposeAhead
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.closing import BackgroundCloser
from orchestrator.drive.health import DrafterHealth
from orchestrator.drive.lease import LeaseClient
from orchestrator.drive.lengths import DraftLengths
from orchestrator.drive.outstanding import Outstanding, Pending
from orchestrator.ports import DrafterPort, DraftStream
from orchestrator.session.session import Session

log = logging.getLogger(__name__)


class Drafting:
    """Requests drafts and hands them to the session as they arrive."""

    def __init__(
        self,
        port: DrafterPort,
        session: Session,
        lease: LeaseClient,
        lengths: DraftLengths,
        config: OrchestratorConfig,
        health: DrafterHealth,
        closer: BackgroundCloser,
        clock: Callable[[], float],
    ) -> None:
        self._port = port
        self._session = session
        self._lease = lease
        self._lengths = lengths
        self._config = config
        self._closer = closer
        self._clock = clock
        self._health = health
        self._stream: DraftStream | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._outstanding = Outstanding(clock, self._answered)
        self.attaches = 0
        # Why no drafter takes the session, whichever it is.
        self.refusal: str | None = None

    @property
    def plain_passes(self) -> int:
        """The number of passes that a round without a draft should have."""
        none = self.refusal is not None or self._session.features_due
        none |= self._stream is None and self._health.paused
        if none or not (self._lengths.wants_draft and (self._attached or self._pays)):
            return self._config.plain_steps
        # With a healthy drafter the draft is only a moment away: do not run far past it.
        return self._config.fallback_steps if self._health.failing else 1

    # The drafter's stream.

    def start(self) -> None:
        """Attach a drafter in the background, if a draft is wanted enough."""
        if self._pays:
            self._lengths.begin()
            self._attaching = asyncio.create_task(self._attach())
            self._attaching.add_done_callback(_log_failure)

    @property
    def _attached(self) -> bool:
        """Whether a drafter is there, or being looked for."""
        looking = self._attaching is not None and not self._attaching.done()
        return self._stream is not None or looking

    @property
    def _pays(self) -> bool:
        """Whether a draft is wanted enough to attach a drafter."""
        rows = self._session.rows_to_restart(self._lengths.features)
        left = self._session.tokens_left
        return self._lengths.wants_draft and self._lengths.begin_pays(rows, left)

    def close(self) -> None:
        """Start closing the stream and give up everything under way."""
        if self._attaching is not None:
            self._attaching.cancel()
        self._lengths.save()
        self._detach()

    async def _attach(self) -> None:
        config = self._config
        while self._stream is None:
            await self._health.until_open()
            opening = self._session.draft_open(
                config.proposal, config.acceptance, config.draft.params, config.run_ahead_outcomes
            )
            began = self._clock()
            try:
                async with asyncio.timeout(config.open_timeout_s):
                    self._stream = await self._port.open(opening)
                self._lengths.opened(self._clock() - began)
            except InvalidRequest as error:
                log.error("drafter refuses the session: %s", error)
                self.refusal = str(error)
                return
            except (ForedraftError, TimeoutError) as error:
                log.warning("no drafter: %s", error)
                self._health.lost()
        self.attaches += 1
        self._session.drafter_opened(self._stream.opened)
        self._lease.drafter_opened(self._stream, opening)
        self._lengths.features = self._stream.opened.model.features_hash
        self._lengths.store = self._stream.opened.tensor_store
        # The drafter reads the prompt while the verifier does. A draft that is made meanwhile is,
        # behind the first token, that of the second round.
        if self._lease.covers_drafts:
            await self._lease.name_drafter()
        else:
            self._request(self._session.next_draft(self._lengths.next_k()))

    def _detach(self) -> None:
        self._leave()
        self._lengths.reset()

    def _leave(self) -> None:
        """Close the drafter's stream, if there is one, and forget what it was asked for."""
        if self._stream is not None:
            self._closer.close(self._stream)
        self._stream = None
        self._session.drafter_lost()
        self._lease.drafter_closed()
        self._outstanding.give_up()

    def _replace(self, reason: str) -> None:
        """Leave the drafter and look for another one, as soon as that is allowed."""
        log.warning("drafter left: %s", reason)
        self._detach()
        self.start()

    def _lost(self, reason: str) -> None:
        self._health.lost()
        self._replace(reason)

    def _missed(self) -> None:
        """Count a draft that did not come in time; give up a drafter that keeps being late."""
        if self._health.missed():
            self._replace("too slow")

    # Before a round, and while it is verified.

    def prepare(self) -> None:
        """Request a draft of the committed prefix unless one is at hand or on its way."""
        if self._session.mismatch is not None:
            self.refusal = self._session.mismatch
            log.error("drafter refused: %s", self.refusal)
            self._detach()
        if self._stream is not None and self._stream.draining:
            self._replace("it drains")
        if not self._attached and self.refusal is None:
            if self._lengths.next_k() and not self._pays:
                self._lengths.decline()
            self.start()
        elif self._lengths.idle and self._session.end_features():
            # Rows are cheaper without; to draft again, the text is read again.
            self._leave()
        late_since = self._outstanding.late_since
        if late_since is not None:
            # A busy drafter is not asked for more, and a silent one is gone.
            if late_since + self._config.drafter_timeout_s < self._clock():
                self._lost("no answer")
        elif (
            not self._lease.covers_drafts
            and self._session.draft() is None
            and self._awaited() is None
        ):
            self._request(self._session.next_draft(self._lengths.next_k()))

    async def wait(self) -> float:
        """Return once the session has a draft, or none will come before the deadline.

        Return after how many seconds.
        """
        began = self._clock()
        until = began + self._config.draft_deadline_ms / 1000
        # Twice: an answer requested earlier may turn out dead, the one requested then cannot.
        for _ in range(2):
            pending = self._awaited()
            if pending is None or self._session.draft() is not None:
                break
            done, _ = await asyncio.wait({pending.task}, timeout=max(0.0, until - self._clock()))
            if not done:
                pending.late = True
                self._missed()
                break
            self.prepare()
        return self._clock() - began

    def run_ahead(self) -> None:
        """Request drafts of the outcomes predicted for the round in flight."""
        free = self._stream is not None and not self._outstanding.full
        if self._lengths.runs_ahead and free and not self._lease.covers_drafts:
            self._request(self._session.drafts_ahead(self._lengths.next_k()))

    def to_grant(self) -> Grant | None:
        """Return what rounds the verifier may lead: none while a draft is at hand or on its way."""
        if self._outstanding or self._session.draft() is not None:
            return None
        wanted = self._stream is not None and self.refusal is None and self._lengths.next_k() > 0
        if not wanted:
            return self._lease.plain(self.plain_passes)
        return self._lease.drafts(self._lengths.next_k(), self._lengths.runs_ahead)

    # After a round.

    def answered_in_time(self) -> None:
        """Forgive the drafter its late answers before this one."""
        self._health.succeeded()

    def lease_ended(self, fault: LeaseFault) -> None:
        """Blame the drafter for what ended a lease, where it is to blame."""
        if fault is LeaseFault.LATE:
            self._missed()
        elif fault is LeaseFault.LOST:
            self._lost("the verifier cannot use it")

    def _awaited(self) -> Pending | None:
        """Return the newest request whose answer could serve the next round."""
        return self._outstanding.newest(self._session.could_serve)

    def _request(self, request: Propose | ProposeAhead | None) -> None:
        if request is not None and self._stream is not None:
            self._outstanding.send(self._stream, request)

    def _answered(self, pending: Pending) -> None:
        request, error = pending.request, pending.task.exception()
        if error is None:
            answer = pending.task.result()
            try:
                if isinstance(request, Propose):
                    self._session.draft_arrived(request, answer)
                else:
                    self._session.drafts_ahead_arrived(request, answer)
            except CorruptModelOutput as corrupt:
                error = corrupt
        if isinstance(error, TensorLost):
            self._session.features_lost()
        if error is not None:
            self._lost(str(error))
        elif not pending.late:
            self.answered_in_time()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("no drafts for this session", exc_info=task.exception())
