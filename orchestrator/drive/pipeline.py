"""One request from start to end: while a round is verified, the next draft is being made.

Session decides, Drafting and Verifying do the I/O, LeaseClient decides which side leads the next
round, and here is their order: each turn of `drive` is one round, led by the verifier or by the
orchestrator, and ends in `_account`.

A round's event is handed to the reader one round late, when the next round has been sent: the
reader then works while the verifier does, and not while the drafter waits for its turn. Two kinds
of event are not held back: the first, because the client waits for it, and those of rounds that the
verifier leads, because it has begun the next one by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from foredraft.decoding.tree import depths
from foredraft.errors import DeadlineExceeded
from foredraft.lease import LeaseEnded
from foredraft.types import Timings
from orchestrator.config import OrchestratorConfig
from orchestrator.controller_state import ControllerState
from orchestrator.drive.channel import BoundedChannel
from orchestrator.drive.closing import BackgroundCloser
from orchestrator.drive.drafting import Drafting
from orchestrator.drive.health import DrafterHealth
from orchestrator.drive.lease import LeaseClient
from orchestrator.drive.lengths import DraftLengths
from orchestrator.drive.verifying import Verifying
from orchestrator.length.controllers import PLAIN, Cost, DraftLengthController
from orchestrator.ports import DrafterPort, VerifierPort
from orchestrator.report import Decision, DecodingMode, RoundStats, StatsAccumulator
from orchestrator.request import Drafted, GenerationRequest, StepEvent, Summary
from orchestrator.session.commit import Step
from orchestrator.session.session import Session

Event = StepEvent | Summary
Emit = Callable[[Event], Awaitable[None]]
Clock = Callable[[], float]


async def generate(
    request: GenerationRequest,
    drafter: DrafterPort,
    verifier: VerifierPort,
    config: OrchestratorConfig,
    clock: Clock = time.monotonic,
    state: ControllerState | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield one StepEvent per round as tokens are committed, then one Summary.

    state is shared by requests of one kind, so that a controller need not learn all of it anew.
    Closing or cancelling the generator ends both streams within config.close_timeout_s. Raises
    InvalidRequest or Overloaded when the request is refused, the verifier's last error when it
    cannot be saved, DeadlineExceeded after request.timeout_s; never a drafter's error.
    """
    found = live_events(request, drafter, verifier, config, clock, state, None)
    async with aclosing(found):
        async for event in found:
            if event is not None:
                yield event


async def live_events(
    request: GenerationRequest,
    drafter: DrafterPort,
    verifier: VerifierPort,
    config: OrchestratorConfig,
    clock: Clock,
    state: ControllerState | None,
    quiet_s: float | None,
) -> AsyncGenerator[Event | None, None]:
    """Yield what `generate` does, and None whenever nothing was committed for quiet_s seconds."""
    interval_s = config.stream_interval_ms / 1e3
    channel: BoundedChannel[Event] = BoundedChannel(
        config.read_ahead, interval_s, config.unread_timeout_s, quiet_s
    )
    state = state or ControllerState()
    # Before the first draft length is chosen: that goes by it.
    with state.traffic.counted():
        run = _Run(request, drafter, verifier, config, clock, state)
        task = asyncio.create_task(run.drive(channel.put))
        task.add_done_callback(lambda _: channel.end())
        try:
            async for event in channel:
                if channel.waiting and isinstance(event, StepEvent):
                    event = replace(event, more=True)
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.wait({task})


def decoding_mode(request: GenerationRequest, config: OrchestratorConfig) -> DecodingMode:
    """Return how a request will be decoded."""
    if not request.speculate:
        return DecodingMode(config.acceptance)
    if request.layout is not None and config.self_draft:
        return DecodingMode(config.acceptance, self_draft=config.self_draft)
    return DecodingMode(config.acceptance, config.proposal, config.ngram.enabled)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One round that was led to its end: it took so many seconds, of which it waited so many for
    its draft, whose length was decided so.
    """

    step: Step
    seconds: float
    draft_wait_s: float
    decision: Decision
    timings: Timings
    verifier_led: bool


class _Run:
    """One request under way, in a task of its own."""

    def __init__(
        self,
        request: GenerationRequest,
        drafter: DrafterPort,
        verifier: VerifierPort,
        config: OrchestratorConfig,
        clock: Clock,
        state: ControllerState,
    ) -> None:
        mode = decoding_mode(request, config)
        controller: DraftLengthController[Any] = (
            PLAIN if mode.proposal is None else config.controller(request.sampling)
        )
        drafts = controller.max_k > 0
        self._lengths = lengths = DraftLengths(controller, state, config.run_ahead_min_hit_rate)
        # A session that begins plainly asks for no features: they cost rows and bytes.
        features = lengths.features if lengths.wants_draft else ""
        self._request = request
        self._config = config
        self._clock = clock
        self._started = clock()
        self._stats = StatsAccumulator(mode)
        self._held_back: StepEvent | None = None
        self._closer = closer = BackgroundCloser()
        ngram = config.ngram.params if drafts else None
        self._session = session = Session(request, features, ngram, lengths.store)
        self._lease = lease = LeaseClient(session, config)
        health = DrafterHealth(config.breaker, state, clock)
        self._drafting = Drafting(drafter, session, lease, lengths, config, health, closer, clock)
        wait_s = config.admission_wait_s if request.may_wait else 0.0
        self._line = line = state.traffic.line
        admit = partial(line.admit, tenant=request.tenant, wait_s=wait_s)
        self._verifying = Verifying(
            verifier,
            session,
            lease,
            config,
            controller.max_k,
            mode.self_draft,
            closer,
            admit,
            clock,
        )

    async def drive(self, emit: Emit) -> None:
        """Decode to the end, emitting events; both streams are closed on the way out."""
        try:
            async with asyncio.timeout(self._request.timeout_s):
                self._drafting.prepare()
                await self._verifying.open()
                await self._lease.name_drafter()
                while self._session.finish is None:
                    # The first token waits for no draft.
                    first = self._stats.rounds == 0
                    wait_s = 0.0 if first else await self._drafting.wait()
                    led = None if first else await self._verifiers_turn(emit)
                    turn = led or await self._own_turn(emit, wait_s)
                    self._account(turn)
                    if turn.verifier_led or first:
                        await self._emit_held_back(emit)
                await self._emit_held_back(emit)
                await emit(self._summary())
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request did not finish within {self._request.timeout_s} s"
            ) from None
        finally:
            self._drafting.close()
            self._verifying.close()
            await self._closer.wait(self._config.close_timeout_s)
            if self._verifying.was_open:
                self._line.ended()

    async def _verifiers_turn(self, emit: Emit) -> _Turn | None:
        """Wait for a round that the verifier leads; None if the next round is not one."""
        began = self._clock()
        grant = None if self._verifying.must_move else self._drafting.to_grant()
        decision = self._lengths.decision
        answer = await self._verifying.led_round(grant)
        if isinstance(answer, LeaseEnded):
            self._drafting.lease_ended(answer.fault)
        if answer is None or isinstance(answer, LeaseEnded):
            return None
        step, led = answer
        seconds = self._clock() - began
        wait_s = min(seconds, led.draft_us / 1e6)
        if led.num_draft_tokens > 0 and not step.ngram:
            self._drafting.answered_in_time()
        await self._emit_held_back(emit)
        return _Turn(step, seconds, wait_s, decision, led.verdict.timings, verifier_led=True)

    async def _own_turn(self, emit: Emit, wait_s: float) -> _Turn:
        """Lead a round: the draft at hand, its verification, the next draft requested meanwhile."""
        if self._verifying.must_move:
            await self._verifying.move()
        began = self._clock() - wait_s
        decision = self._lengths.decision
        # The first token does not wait for the next ones either.
        request = self._session.next_round(self._drafting.plain_passes if self._stats.rounds else 1)
        # Tasks, this and the reader: they start when the verification below has been sent.
        self._drafting.run_ahead()
        await self._emit_held_back(emit)
        step, timings = await self._verifying.verify(request)
        self._lease.own_round_done()
        seconds = self._clock() - began
        return _Turn(step, seconds, wait_s, decision, timings, verifier_led=False)

    def _account(self, turn: _Turn) -> None:
        """Learn from a round, have the next one's draft made, and hold back the round's event."""
        step, seen = turn.step, turn.step.observation
        # Prompts that others have read take as long whether this session drafts or not.
        timings = turn.timings
        seconds = max(0.0, turn.seconds - timings.prefill_us / 1e6)
        passes_s = (timings.compute_us - timings.compute_prefill_us) / 1e6
        away_s = max(0.0, seconds - passes_s)
        offered, tokens = len(step.request.draft), len(step.tokens)
        plainly = self._plainly(step, timings.passes)
        cost = Cost(
            turn.decision.k,
            offered,
            step.bought,
            tokens,
            seconds,
            away_s,
            step.price,
            *plainly,
        )
        self._lengths.observe(seen, cost)
        self._drafting.prepare()
        stats = RoundStats(
            round=step.request.base.round,
            num_draft_tokens=len(step.request.draft),
            num_accepted=step.num_accepted,
            num_bought=step.bought,
            depth=_depth(step.request.parents, step.bought),
            price=step.price,
            ngram=step.ngram,
            verifier_led=turn.verifier_led,
            ran_ahead=step.ran_ahead,
            hit=step.hit,
            began_s=self._clock() - self._started - turn.seconds,
            draft_wait_s=turn.draft_wait_s,
            verify_s=turn.seconds - turn.draft_wait_s,
            verify_timings=timings,
            decision=turn.decision,
        )
        self._stats.add(step.tokens, stats)
        self._held_back = StepEvent(
            step.tokens,
            stats,
            step.prompt_logprobs,
            step.cached_tokens,
            drafted=Drafted(
                step.request.draft, step.request.parents, step.kept, step.draft_timings
            ),
        )

    def _plainly(self, step: Step, passes: int) -> tuple[int, int]:
        """Return how many tokens plain decoding would have committed, in how many passes; none
        where that is not known, as of the first token, whose pass reads the prompt.
        """
        if step.request.draft:
            return max(1, step.plain_tokens), 1
        known = passes > 0 and self._stats.rounds > 0
        return (len(step.tokens), passes) if known else (0, 0)

    async def _emit_held_back(self, emit: Emit) -> None:
        event, self._held_back = self._held_back, None
        if event is not None:
            await emit(event)

    def _summary(self) -> Summary:
        assert self._session.finish is not None
        return Summary(
            self._session.finish,
            self._stats.report(
                self._clock() - self._started,
                self._verifying.moves,
                self._drafting.attaches,
                self._drafting.refusal,
            ),
        )


def _depth(parents: Sequence[int], bought: int) -> int:
    """Return on how many levels the first nodes of a draft are; without parents it is a path."""
    return max(depths(parents[:bought]), default=0) if parents else bought
