"""The drafter's batches: whatever waits when the engine is free shares the next one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from drafter_service.engine import DrafterEngine
from foredraft.errors import ForedraftError, Overloaded
from foredraft.rpc.engine_thread import EngineThread, Settled
from foredraft.types import DraftBlock, DraftOpen, DraftOpened, ModelInfo, Propose

log = logging.getLogger(__name__)

# Weight of the newest proposal in the mean wait.
_WAIT_WEIGHT = 0.05


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Propose
    answer: asyncio.Future[DraftBlock]
    arrived: float


class Proposals:
    """The proposals that wait for an engine; of each session the oldest is in the next batch."""

    def __init__(self, engine: DrafterEngine) -> None:
        self.engine = engine
        # By session, oldest first; None closes it.
        self._waiting: dict[int, deque[_Waiting | None]] = {}
        self._batches = self._blocks = 0
        self._wait_s = 0.0

    @property
    def info(self) -> ModelInfo:
        """The model."""
        return self.engine.info

    @property
    def has_work(self) -> bool:
        """Whether proposals wait."""
        return bool(self._waiting)

    def submit(
        self, handle: int, request: Propose, answer: asyncio.Future[DraftBlock], arrived: float
    ) -> None:
        """Queue a proposal that arrived at a time of time.perf_counter."""
        waiting = self._waiting.setdefault(handle, deque())
        waiting.append(_Waiting(request, answer, arrived))

    def close(self, handle: int) -> None:
        """Free a session after what it still waits for."""
        self._waiting.setdefault(handle, deque()).append(None)
        self._close_ended()

    def step(self) -> Iterator[Sequence[Settled]]:
        """Run a batch; an engine that fails fails its proposals and goes on."""
        begin = time.perf_counter()
        heads = ((handle, waiting.popleft()) for handle, waiting in self._waiting.items())
        asked = {handle: each for handle, each in heads if each is not None}
        self._batches += 1
        try:
            requests = [(handle, each.request) for handle, each in asked.items()]
            for answers in self.engine.answers(requests):
                yield [self._settled(asked.pop(h), a, begin) for h, a in answers.items()]
        except Exception:
            log.exception("the drafter's engine failed")
            error = ForedraftError("the drafter's engine failed")
            yield [(each.answer, error) for each in asked.values()]
        self._close_ended()

    def gauges(self) -> dict[str, float]:
        """Return the engine's sessions and evictions, and what was batched so far."""
        return {
            "queue_wait_ms": 1e3 * self._wait_s,
            "sessions": float(self.engine.sessions),
            "batches": float(self._batches),
            "blocks": float(self._blocks),
            "evictions": float(self.engine.evictions),
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
        self, each: _Waiting, answer: DraftBlock | ForedraftError, begin: float
    ) -> Settled:
        if isinstance(answer, DraftBlock):
            wait_s = begin - each.arrived
            self._wait_s += _WAIT_WEIGHT * (wait_s - self._wait_s)
            self._blocks += 1
            compute_us = int(1e6 * (time.perf_counter() - begin))
            timings = replace(answer.timings, queue_us=int(1e6 * wait_s), compute_us=compute_us)
            answer = replace(answer, timings=timings)
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
        if self.waiting >= self._max_queue:
            raise Overloaded(f"{self._max_queue} proposals wait at the drafter")
        arrived = time.perf_counter()
        return self.ask(
            lambda proposals, answer: proposals.submit(handle, request, answer, arrived)
        )
