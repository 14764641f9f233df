"""Drives one session over the two ports: while a block is verified, the next is being drafted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from foredraft.errors import DeadlineExceeded
from foredraft.lease import DirectEnded
from foredraft.types import Timings
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.channel import Handoff
from orchestrator.drive.closing import Closing
from orchestrator.drive.drafting import Drafting
from orchestrator.drive.verifying import Verifying
from orchestrator.length.controllers import PLAIN, Cost, DraftLengthController
from orchestrator.memory import Memory
from orchestrator.ports import DrafterPort, VerifierPort
from orchestrator.report import Decision, How, RoundStats, Tally
from orchestrator.request import GenerationRequest, StepEvent, Summary
from orchestrator.session.session import Session
from orchestrator.session.step import Step

Event = StepEvent | Summary
Clock = Callable[[], float]


async def generate(
    request: GenerationRequest,
    drafter: DrafterPort,
    verifier: VerifierPort,
    config: OrchestratorConfig,
    clock: Clock = time.monotonic,
    memory: Memory | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield one StepEvent per round as tokens are committed, then one Summary.

    memory is shared by requests of one kind, so that a controller need not learn all of it anew.
    Closing or cancelling the generator ends both streams within config.close_timeout_s. Raises
    InvalidRequest or Overloaded when the request is refused, the verifier's last error when it
    cannot be saved, DeadlineExceeded after request.timeout_s; never a drafter's error.
    """
    handoff: Handoff[Event] = Handoff(config.read_ahead)
    driver = _Run(request, drafter, verifier, config, clock, memory or Memory())
    run = asyncio.create_task(driver.drive(handoff.put))
    run.add_done_callback(lambda _: handoff.end())
    try:
        async for event in handoff:
            yield event
        await run
    finally:
        run.cancel()
        await asyncio.wait({run})


def how(request: GenerationRequest, config: OrchestratorConfig) -> How:
    """Return how a request will be decoded."""
    return How(config.acceptance, config.proposal if request.speculate else None)


class _Run:
    """One request under way.

    It runs as its own task. A round's event is handed over when the next round has been sent: the
    reader then works while the verifier does, and not while the drafter waits for its turn.
    """

    def __init__(
        self,
        request: GenerationRequest,
        drafter: DrafterPort,
        verifier: VerifierPort,
        config: OrchestratorConfig,
        clock: Clock,
        memory: Memory,
    ) -> None:
        controller: DraftLengthController[Any] = (
            config.controller(request.sampling) if request.speculate else PLAIN
        )
        self._request = request
        self._config = config
        self._clock = clock
        self._started = clock()
        self._tally = Tally(how(request, config))
        self._untold: StepEvent | None = None
        self._closing = Closing()
        self._session = Session(request, memory.features if controller.longest else "")
        self._drafting = Drafting(
            drafter, self._session, controller, config, self._closing, clock, memory
        )
        self._verifying = Verifying(
            verifier, self._session, config, controller.longest, self._closing
        )

    async def drive(self, emit: Callable[[Event], Awaitable[None]]) -> None:
        """Decode to the end, emitting events; both streams are closed on the way out."""
        try:
            async with asyncio.timeout(self._request.timeout_s):
                self._drafting.start()
                await self._verifying.open()
                await self._drafting.settle()
                while self._session.finish is None:
                    if not await self._direct_round(emit):
                        await self._round(emit)
                await self._tell(emit)
                await emit(self._summary())
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request did not finish within {self._request.timeout_s} s"
            ) from None
        finally:
            self._drafting.close()
            self._verifying.close()
            await self._closing.wait(self._config.close_timeout_s)

    async def _direct_round(self, emit: Callable[[Event], Awaitable[None]]) -> bool:
        """Wait for a round that the verifier leads; return whether there was one."""
        began = self._clock()
        order = None if self._verifying.must_move else self._drafting.order()
        decision = self._drafting.decision
        told = await self._verifying.direct(order)
        if isinstance(told, DirectEnded):
            self._drafting.direct_ended(told.fault)
        if told is None or isinstance(told, DirectEnded):
            return False
        step, details = told
        # That of an ordinary round before.
        await self._tell(emit)
        took = self._clock() - began
        drafting = min(took, details.draft_us / 1e6)
        self._account(step, took, drafting, decision, details.verdict.timings)
        await self._tell(emit)
        return True

    async def _round(self, emit: Callable[[Event], Awaitable[None]]) -> None:
        """Decode one round: draft at hand, verification, the next draft asked for meanwhile."""
        if self._verifying.must_move:
            await self._verifying.move()
        began = self._clock()
        await self._drafting.wait()
        drafted = self._clock()
        decision = self._drafting.decision
        asked = self._session.next_round(self._drafting.plain_steps)
        # Tasks, this and the reader: they start when the verification below has been sent.
        self._drafting.run_ahead()
        await self._tell(emit)
        step, timings = await self._verifying.verify(asked)
        first = self._tally.rounds == 0
        self._account(step, self._clock() - began, drafted - began, decision, timings)
        if first:
            # Somebody waits for the first tokens.
            await self._tell(emit)

    def _account(
        self, step: Step, took: float, drafting: float, decision: Decision, timings: Timings
    ) -> None:
        """Learn from a round that took so many seconds, of which it waited so many for its draft;
        have the next one drafted.
        """
        seen = step.observation
        cost = Cost(seen.asked if seen else 0, len(step.tokens), took)
        # The reading of the prompt is in the first round's time.
        self._drafting.observe(seen, None if self._tally.rounds == 0 else cost)
        self._drafting.prepare()
        stats = RoundStats(
            round=step.asked.base.round,
            drafted=len(step.asked.draft),
            kept=step.kept,
            ran_ahead=step.ran_ahead,
            hit=step.hit,
            draft_wait_s=drafting,
            verify_s=took - drafting,
            verify_timings=timings,
            decision=decision,
        )
        self._tally.add(step.tokens, stats)
        self._untold = StepEvent(step.tokens, stats, step.prompt_logprobs, step.cached_tokens)

    async def _tell(self, emit: Callable[[Event], Awaitable[None]]) -> None:
        """Hand over the last round's event, if that is still to be done."""
        event, self._untold = self._untold, None
        if event is not None:
            await emit(event)

    def _summary(self) -> Summary:
        assert self._session.finish is not None
        return Summary(
            self._session.finish,
            self._tally.report(
                self._clock() - self._started,
                self._verifying.moves,
                self._drafting.attaches,
                self._drafting.refusal,
            ),
        )
