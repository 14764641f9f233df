"""The drafter's batches: whatever waits when the engine is free shares the next one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from drafter_service.bursts import Bursts
from drafter_service.engine import DrafterEngine
from foredraft.errors import ForedraftError, Overloaded
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from foredraft.pacing.pacer import pace_gauges
from foredraft.rpc.engine_thread import EngineThread, Settled
from foredraft.types import ModelInfo

log = logging.getLogger(__name__)

# Weight of the newest proposal, or batch, in means.
_NEWEST_WEIGHT = 0.05


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Propose | ProposeAhead
    answer: asyncio.Future[Any]
    arrived: float


class Proposals:
    """The proposals that wait for an engine; of each session the oldest is in the next batch.

    Those for predicted outcomes have an engine that nobody else wants: they are dropped, answered
    with no blocks, where any other proposal waits.
    """

    def __init__(
        self, engine: DrafterEngine, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.engine = engine
        self._clock = clock
        # By session, oldest first; None closes it.
        self._waiting: dict[int, deque[_Waiting | None]] = {}
        self._batches = self._blocks = self._ahead = self._dropped = 0
        self._wait_s = self._batch_size = 0.0
        self._bursts: dict[type[Propose | ProposeAhead], Bursts] = {
            Propose: Bursts(),
            ProposeAhead: Bursts(),
        }

    @property
    def info(self) -> ModelInfo:
        """The model."""
        return self.engine.info

    @property
    def has_work(self) -> bool:
        """Whether proposals wait."""
        return bool(self._waiting)

    def patience_s(self) -> float:
        """How long the next batch should wait for the rest of a burst."""
        present = len(self._waiting)
        if present == self.engine.sessions:
            return 0.0
        return self._bursts[self._next_kind].patience_s(self._clock(), present)

    @property
    def _next_kind(self) -> type[Propose | ProposeAhead]:
        """The kind of the next batch: what is drafted ahead gives way."""
        queued = (each for waiting in self._waiting.values() for each in waiting)
        busy = any(each and isinstance(each.request, Propose) for each in queued)
        return Propose if busy else ProposeAhead

    def submit(
        self,
        handle: int,
        request: Propose | ProposeAhead,
        answer: asyncio.Future[Any],
        arrived: float,
    ) -> None:
        """Queue a proposal that arrived at a time of the clock."""
        waiting = self._waiting.setdefault(handle, deque())
        waiting.append(_Waiting(request, answer, arrived))
        self._bursts[type(request)].arrived(arrived)

    def close(self, handle: int) -> None:
        """Free a session after what it still waits for."""
        self._waiting.setdefault(handle, deque()).append(None)
        self._close_ended()

    def step(self) -> Iterator[Sequence[Settled]]:
        """Run a batch; an engine that fails fails its proposals and goes on."""
        begin, kind = self._clock(), self._next_kind
        if dropped := self._drop_ahead():
            yield dropped
        heads = ((handle, waiting.popleft()) for handle, waiting in self._waiting.items())
        asked = {handle: each for handle, each in heads if each is not None}
        count = len(asked)
        self._batches += 1
        self._batch_size += _NEWEST_WEIGHT * (len(asked) - self._batch_size)
        try:
            for answers in self._answers(asked):
                yield [self._settled(asked.pop(h), a, begin) for h, a in answers.items()]
        except Exception:
            log.exception("the drafter's engine failed")
            error = ForedraftError("the drafter's engine failed")
            yield [(each.answer, error) for each in asked.values()]
        if count:
            now = self._clock()
            self._bursts[kind].done(now, count, now - begin)
        self._close_ended()

    def _drop_ahead(self) -> list[Settled]:
        """Answer proposals for predicted outcomes with nothing, where any other proposal waits or
        the session has gone on.
        """
        busy = self._next_kind is Propose
        dropped: list[Settled] = []
        for handle, waiting in self._waiting.items():
            while waiting and (head := waiting[0]) and isinstance(head.request, ProposeAhead):
                if not busy and len(waiting) == 1:
                    break
                waiting.popleft()
                answer: tuple[DraftBlock, ...] | ForedraftError = ()
                try:
                    self.engine.name(handle, head.request)
                except ForedraftError as error:
                    answer = error
                dropped.append((head.answer, answer))
        self._dropped += len(dropped)
        self._close_ended()
        return dropped

    def _answers(
        self, asked: Mapping[int, _Waiting]
    ) -> Iterator[Mapping[int, DraftBlock | tuple[DraftBlock, ...] | ForedraftError]]:
        """Yield the engine's answers by handle: all proposals are of one kind."""
        requests = [(handle, each.request) for handle, each in asked.items()]
        ahead = [(handle, r) for handle, r in requests if isinstance(r, ProposeAhead)]
        if ahead:
            yield self.engine.answers_ahead(ahead)
        else:
            yield from self.engine.answers([(h, r) for h, r in requests if isinstance(r, Propose)])

    def gauges(self) -> dict[str, float]:
        """Return the engine's sessions and evictions, and what was batched so far.

        queue_wait_ms and batch_size are means over about the last twenty.
        """
        return {
            "queue_wait_ms": 1e3 * self._wait_s,
            "batch_size": self._batch_size,
            "sessions": float(self.engine.sessions),
            "batches": float(self._batches),
            "blocks": float(self._blocks),
            "blocks_ahead": float(self._ahead),
            "ahead_dropped": float(self._dropped),
            "evictions": float(self.engine.evictions),
            **pace_gauges(self.engine.model),
        }

    def _close_ended(self) -> None:
        """Close the sessions whose turn to end has come."""
        for handle, waiting in tuple(self._waiting.items()):
            while waiting and waiting[0] is None:
                self.engine.close(handle)
                waiting.popleft()
            if not waiting:
                del self._waiting[handle]

    def _settled(
        self,
        each: _Waiting,
        answer: DraftBlock | tuple[DraftBlock, ...] | ForedraftError,
        begin: float,
    ) -> Settled:
        wait_s = begin - each.arrived
        compute_us = int(1e6 * (self._clock() - begin))

        def timed(block: DraftBlock) -> DraftBlock:
            timings = replace(block.timings, queue_us=int(1e6 * wait_s), compute_us=compute_us)
            return replace(block, timings=timings)

        if isinstance(answer, DraftBlock):
            self._wait_s += _NEWEST_WEIGHT * (wait_s - self._wait_s)
            self._blocks += 1
            return each.answer, timed(answer)
        if isinstance(answer, tuple):
            self._blocks += len(answer)
            self._ahead += len(answer)
            return each.answer, tuple(map(timed, answer))
        return each.answer, answer


class Batcher(EngineThread[Proposals]):
    """Lets one event loop use a drafter engine."""

    def __init__(self, load: Callable[[], DrafterEngine], max_queue: int) -> None:
        super().__init__("drafter", lambda: Proposals(load()))
        self._max_queue = max_queue

    async def open(self, request: DraftOpen) -> tuple[int, DraftOpened]:
        """Open a session; return its handle and the answer."""
        return await self.open_session(lambda it: it.engine.open(request))

    def propose(self, handle: int, request: Propose) -> asyncio.Future[DraftBlock]:
        """Queue a proposal; the future gets its block. Raise Overloaded if too many wait."""
        return self.propose_all([(handle, request)])[0]

    def propose_all(
        self, requests: Sequence[tuple[int, Propose]]
    ) -> list[asyncio.Future[DraftBlock]]:
        """Queue proposals of several sessions for one batch; raise Overloaded if too many wait."""
        return self._queued(requests)

    def propose_ahead(
        self, handle: int, request: ProposeAhead
    ) -> asyncio.Future[tuple[DraftBlock, ...]]:
        """Queue a proposal for predicted outcomes; the future gets the blocks that were made.

        Raise Overloaded if too many wait.
        """
        return self._queued([(handle, request)])[0]

    def _queued(
        self, requests: Sequence[tuple[int, Propose | ProposeAhead]]
    ) -> list[asyncio.Future[Any]]:
        if self.waiting + len(requests) > self._max_queue:
            raise Overloaded(f"{self._max_queue} proposals wait at the drafter")
        arrived = time.perf_counter()
        return self.ask_all([partial(_submit, request, arrived) for request in requests])


def _submit(
    request: tuple[int, Propose | ProposeAhead],
    arrived: float,
    proposals: Proposals,
    answer: asyncio.Future[Any],
) -> None:
    proposals.submit(*request, answer, arrived)
