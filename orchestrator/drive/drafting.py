"""A session's drafter: attached in the background, asked ahead of time, never waited for long.

Nothing that a drafter does or fails to do ends a request: without a draft a round is plain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest
from foredraft.lease import DirectFault, DraftSource
from foredraft.limits import MAX_DEADLINE_US, is_address
from foredraft.types import DraftBlock, Propose
from orchestrator.breaker import BreakerState
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.closing import Closing
from orchestrator.drive.lease import Order, Reachable
from orchestrator.length.controllers import Cost, DraftLengthController, Observation
from orchestrator.memory import Memory
from orchestrator.ports import DrafterPort, DraftStream, Drains
from orchestrator.report import NO_DRAFT, Decision
from orchestrator.run_ahead import RunAheadGate
from orchestrator.session.session import Session

log = logging.getLogger(__name__)

# Proposals unanswered at once: one for a prediction, and one just in time when that came out wrong.
MAX_OUTSTANDING = 2
# Drafters that a verifier could not use, one after the other, before drafts pass by here.
MAX_LOST_DIRECTLY = 2


@dataclass(slots=True, eq=False)
class _Pending:
    """One unanswered proposal; late once a round has waited for it in vain."""

    request: Propose
    task: asyncio.Task[DraftBlock]
    asked_at: float
    late: bool = False


class Drafting:
    """Asks for drafts and hands them to the session as they arrive."""

    def __init__(
        self,
        port: DrafterPort,
        session: Session,
        controller: DraftLengthController[Any],
        config: OrchestratorConfig,
        closing: Closing,
        clock: Callable[[], float],
        memory: Memory,
    ) -> None:
        self._port = port
        self._session = session
        self._controller = controller
        self._config = config
        self._closing = closing
        self._clock = clock
        self._memory = memory
        self._adl = memory.recall(controller)
        self.decision = NO_DRAFT
        self._gate = RunAheadGate(config.run_ahead_least)
        known = memory.foretold
        self._foretold = self._gate.start if known is None else known
        self._copying = config.copying
        self._breaker = config.breaker.breaker()
        self._stream: DraftStream | None = None
        self._drains: Drains | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._pending: list[_Pending] = []
        # The drafter as the verifier can ask it; None if every draft passes by here.
        self._source: DraftSource | None = None
        self._direct = config.direct_rounds > 0
        # Direct rounds have just failed: the next round is an ordinary one.
        self._held = False
        self._lost_directly = 0
        self.attaches = 0
        # Why no drafter takes the session, whichever it is.
        self.refusal: str | None = None

    @property
    def plain_steps(self) -> int:
        """The number of tokens that a round without a draft should decode."""
        none = self.refusal is not None or self._session.features_due
        if none or self._controller.next_length(self._adl) == 0:
            return self._config.plain_steps
        # With a healthy drafter the draft is only a moment away: do not run far past it.
        return self._config.fallback_steps if self._breaker.failures else 1

    def order(self) -> Order | None:
        """Return what the verifier may do by itself, None if the next round is to be asked for."""
        source = self._source
        if source is None or self._held or not self._session.takes_direct:
            return None
        if self._pending or self.refusal is not None or self._session.draft() is not None:
            return None
        length = self._length()
        if length == 0:
            return None
        deadline_us = min(max(1, int(1000 * self._config.draft_deadline_ms)), MAX_DEADLINE_US)
        ahead = self._gate.is_open(self._foretold)
        return Order(source, length, self._config.direct_rounds, deadline_us, ahead)

    @property
    def _led(self) -> bool:
        """Whether drafts are the verifier's to ask for."""
        return self._source is not None and self._session.takes_direct

    def direct_ended(self, fault: DirectFault) -> None:
        """Take note that the verifier waits to be asked, and why."""
        self._held = True
        if fault is DirectFault.LATE:
            self._missed()
        elif fault is DirectFault.LOST:
            self._lost_directly += 1
            # Not the drafter's fault, perhaps, but of the way to it.
            self._direct = self._lost_directly < MAX_LOST_DIRECTLY
            self._lost("the verifier cannot use it")
        elif fault is DirectFault.UNSUPPORTED:
            self._direct, self._source = False, None

    def start(self) -> None:
        """Attach a drafter in the background, if the controller can ever ask for a draft."""
        if self._controller.longest > 0:
            self._attaching = asyncio.create_task(self._attach())
            self._attaching.add_done_callback(_log_failure)

    async def settle(self) -> None:
        """Wait for the first try to attach, like for a draft; the verifier reads the prompt now."""
        if self._attaching is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.draft_deadline_ms / 1000):
                    await self._tried.wait()

    def prepare(self) -> None:
        """Ask for a draft of the committed prefix unless one is at hand or on its way."""
        if self._session.mismatch is not None:
            self.refusal = self._session.mismatch
            log.error("drafter refused: %s", self.refusal)
            self._detach()
        if self._drains is not None and self._drains.draining:
            self._replace("it drains")
        if any(pending.late for pending in self._pending):
            # A busy drafter is not asked for more, and a silent one is gone.
            if self._pending[0].asked_at + self._config.drafter_timeout_s < self._clock():
                self._lost("no answer")
        elif self._led:
            if not self._held:
                self._lost_directly = 0
            self._held = False
        elif self._session.draft() is None and self._awaited() is None:
            length = self._length()
            # A copy costs no round trip, and needs no drafter.
            if self._copying is None or not self._session.copy(length, self._copying):
                self._ask(self._session.draft_request(length))

    async def wait(self) -> None:
        """Return once the session has a draft, or none will come before the deadline."""
        until = self._clock() + self._config.draft_deadline_ms / 1000
        # Twice: an answer asked for earlier may turn out dead, the one asked for then cannot.
        for _ in range(2):
            pending = self._awaited()
            if pending is None or self._session.draft() is not None:
                return
            done, _ = await asyncio.wait({pending.task}, timeout=max(0.0, until - self._clock()))
            if not done:
                pending.late = True
                self._missed()
                return
            self.prepare()

    def run_ahead(self) -> None:
        """Ask for a draft of the outcome predicted for the round in flight."""
        if (
            not self._led
            and len(self._pending) < MAX_OUTSTANDING
            and self._gate.is_open(self._foretold)
        ):
            self._ask(self._session.run_ahead_request(self._length()))

    def observe(self, observation: Observation | None, cost: Cost | None) -> None:
        """Tell the controller how a block fared, if there was one, and what the round took."""
        if cost is not None:
            self._adl = self._controller.spent(self._adl, cost)
        if observation is not None:
            self._adl = self._controller.update(self._adl, observation)
            if observation.foretold is not None:
                self._foretold = self._gate.update(self._foretold, observation.foretold)

    def close(self) -> None:
        """Start closing the stream and give up everything under way."""
        if self._attaching is not None:
            self._attaching.cancel()
        self._memory.keep(self._controller, self._adl)
        self._memory.foretold = self._foretold
        self._detach()

    def _length(self) -> int:
        length = self._controller.next_length(self._adl)
        self.decision = Decision(length, self._controller.explain(self._adl))
        return length

    def _awaited(self) -> _Pending | None:
        """Return the newest proposal whose answer could serve the next round."""
        for pending in reversed(self._pending):
            if not pending.late and self._session.extends(pending.request.base):
                return pending
        return None

    def _ask(self, request: Propose | None) -> None:
        stream = self._stream
        if request is None or stream is None:
            return
        # Never cancelled while the stream lives: the drafter's idea of the prefix must stay ours.
        pending = _Pending(request, asyncio.create_task(stream.propose(request)), self._clock())
        self._pending.append(pending)
        pending.task.add_done_callback(lambda task: self._answered(pending, task))

    def _answered(self, pending: _Pending, task: asyncio.Task[DraftBlock]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if pending not in self._pending:
            return
        self._pending.remove(pending)
        if error is None:
            try:
                self._session.draft_arrived(pending.request, task.result())
            except CorruptModelOutput as corrupt:
                error = corrupt
        if error is not None:
            self._lost(str(error))
        elif not pending.late:
            self._breaker = self._breaker.succeeded()

    def _missed(self) -> None:
        """Count a draft that did not come in time; give up a drafter that keeps being late."""
        self._breaker = self._breaker.failed(self._clock())
        if self._breaker.state(self._clock()) is BreakerState.OPEN:
            self._replace("too slow")

    def _lost(self, reason: str) -> None:
        self._breaker = self._breaker.failed(self._clock())
        self._replace(reason)

    def _replace(self, reason: str) -> None:
        """Leave the drafter and look for another one, as soon as the breaker allows."""
        log.warning("drafter left: %s", reason)
        self._detach()
        self.start()

    def _detach(self) -> None:
        if self._stream is not None:
            self._closing.begin(self._stream)
        self._stream = self._drains = self._source = None
        self._session.drafter_lost()
        self._adl = self._controller.initial()
        pending, self._pending = self._pending, []
        for each in pending:
            each.task.cancel()

    async def _attach(self) -> None:
        how = (self._config.asked, self._config.acceptance, self._config.draft.params)
        while self._stream is None:
            await asyncio.sleep(self._breaker.wait_s(self._clock()))
            try:
                async with asyncio.timeout(self._config.open_timeout_s):
                    self._stream = await self._port.open(self._session.draft_open(*how))
            except InvalidRequest as error:
                log.error("drafter refuses the session: %s", error)
                self.refusal = str(error)
                return
            except (ForedraftError, TimeoutError) as error:
                log.warning("no drafter: %s", error)
                self._breaker = self._breaker.failed(self._clock())
            finally:
                self._tried.set()
        self.attaches += 1
        self._drains = self._stream if isinstance(self._stream, Drains) else None
        self._session.drafter_opened(self._stream.opened)
        self._memory.features = self._stream.opened.model.features_hash
        address = self._stream.address if isinstance(self._stream, Reachable) else ""
        if self._direct and is_address(address):
            self._source = DraftSource(address, self._session.direct_open(*how), self._copying)
        if not self._led:
            # The first draft is made while the verifier still reads the prompt.
            self._ask(self._session.draft_request(self._length()))


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("no drafts for this session", exc_info=task.exception())
