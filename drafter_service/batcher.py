"""One worker thread owns the engine; whatever waits when it is free shares the next pass."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from drafter_service.engine import DrafterEngine
from foredraft.errors import ForedraftError, Overloaded, Unavailable
from foredraft.rpc.busy import BusyMeter
from foredraft.types import DraftBlock, DraftOpen, DraftOpened, ModelInfo, Propose

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Open:
    request: DraftOpen
    answer: asyncio.Future[tuple[int, DraftOpened]]


@dataclass(frozen=True, slots=True)
class _Ask:
    handle: int
    request: Propose
    answer: asyncio.Future[DraftBlock]
    arrived: float


@dataclass(frozen=True, slots=True)
class _Close:
    handle: int


_Work = _Open | _Ask | _Close | None


class Batcher:
    """Lets one event loop use an engine that runs in a thread of its own.

    The engine takes everything that waits, at once and without delay; one session's proposals are
    run in the order they came, each in a pass of its own.
    """

    def __init__(self, load: Callable[[], DrafterEngine], max_queue: int) -> None:
        self._load, self._max_queue = load, max_queue
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._waiting = 0
        self._busy = BusyMeter()
        self._batches = self._blocks = 0
        self._wait_s = 0.0
        self._sessions = self._evictions = 0
        self._info: ModelInfo | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    async def start(self) -> None:
        """Load the engine in its thread; raise what loading raised."""
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="drafter", daemon=True
        )
        self._thread.start()
        try:
            await ready
        except BaseException:
            self._stopped = True
            self._work.put(None)
            raise

    @property
    def info(self) -> ModelInfo:
        """The model; raise Unavailable unless its engine is loaded and its thread alive."""
        if self._info is None or self._thread is None or not self._thread.is_alive():
            raise Unavailable("the drafter is not running")
        return self._info

    async def open(self, request: DraftOpen) -> tuple[int, DraftOpened]:
        """Open a session; return its handle and the answer."""
        answer: asyncio.Future[tuple[int, DraftOpened]] = self._loop.create_future()
        self._put(_Open(request, answer))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            # The engine may have opened it already: nobody is left to close it but us.
            answer.add_done_callback(self._close_unclaimed)
            raise

    def propose(self, handle: int, request: Propose) -> asyncio.Future[DraftBlock]:
        """Queue a proposal; the future gives its block. Raise Overloaded if too many wait."""
        if self._waiting >= self._max_queue:
            raise Overloaded(f"{self._max_queue} proposals wait at the drafter")
        answer: asyncio.Future[DraftBlock] = self._loop.create_future()
        self._put(_Ask(handle, request, answer, time.perf_counter()))
        self._waiting += 1
        answer.add_done_callback(self._answered)
        return answer

    def close(self, handle: int) -> None:
        """Free a session after what it still waits for."""
        if not self._stopped:
            self._work.put(_Close(handle))

    def stats(self) -> dict[str, float]:
        """Return the gauges that autoscaling and metrics read."""
        return {
            "busy": self._busy.fraction(time.monotonic()),
            "queue": float(self._waiting),
            "queue_wait_ms": 1e3 * self._wait_s,
            "sessions": float(self._sessions),
            "batches": float(self._batches),
            "blocks": float(self._blocks),
            "evictions": float(self._evictions),
        }

    async def stop(self) -> None:
        """Finish what waits, then end the thread."""
        if self._thread is not None and not self._stopped:
            self._stopped = True
            self._work.put(None)
            await asyncio.to_thread(self._thread.join)

    def _put(self, work: _Work) -> None:
        if self._stopped or self._thread is None:
            raise Unavailable("the drafter is not running")
        self._work.put(work)

    def _answered(self, answer: asyncio.Future[DraftBlock]) -> None:
        self._waiting -= 1

    def _close_unclaimed(self, answer: asyncio.Future[tuple[int, DraftOpened]]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.close(answer.result()[0])

    # Everything below runs in the worker thread, save _settle.

    def _run(self, ready: asyncio.Future[None]) -> None:
        try:
            engine = self._load()
        except Exception as error:  # noqa: BLE001 - whatever loading raised is the caller's
            self._post([(ready, error)])
            return
        self._info = engine.info
        self._post([(ready, None)])
        stopping = False
        while not stopping:
            work = [self._work.get()]
            while not self._work.empty():
                work.append(self._work.get())
            stopping = None in work
            started = time.monotonic()
            self._serve(engine, work)
            self._sessions, self._evictions = engine.sessions, engine.evictions
            self._busy.add(started, time.monotonic())

    def _serve(self, engine: DrafterEngine, work: list[_Work]) -> None:
        batch: dict[int, _Ask] = {}
        for item in work:
            if isinstance(item, _Ask):
                if item.handle in batch:
                    self._propose(engine, batch)
                    batch = {}
                batch[item.handle] = item
            elif isinstance(item, _Open):
                self._post([(item.answer, _attempt(engine.open, item.request))])
            elif isinstance(item, _Close):
                if item.handle in batch:
                    self._propose(engine, batch)
                    batch = {}
                engine.close(item.handle)
        if batch:
            self._propose(engine, batch)

    def _propose(self, engine: DrafterEngine, batch: dict[int, _Ask]) -> None:
        """Run a batch; post each answer as soon as it is known."""
        begin = time.perf_counter()
        self._batches += 1
        waiting = dict(batch)

        def run(requests: list[tuple[int, Propose]]) -> None:
            for answers in engine.answers(requests):
                self._post([self._settled(waiting.pop(h), a, begin) for h, a in answers.items()])

        failure = _attempt(run, [(ask.handle, ask.request) for ask in batch.values()])
        self._post([(ask.answer, failure) for ask in waiting.values()])

    def _settled(self, ask: _Ask, answer: Any, begin: float) -> tuple[asyncio.Future[Any], Any]:
        if isinstance(answer, DraftBlock):
            wait = begin - ask.arrived
            # A running mean over the last dozens of proposals.
            self._wait_s += 0.05 * (wait - self._wait_s)
            self._blocks += 1
            compute_us = int(1e6 * (time.perf_counter() - begin))
            timings = replace(answer.timings, queue_us=int(1e6 * wait), compute_us=compute_us)
            answer = replace(answer, timings=timings)
        return ask.answer, answer

    def _post(self, settled: list[tuple[asyncio.Future[Any], Any]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, settled)
        except RuntimeError:
            log.info("the event loop ended before the drafter's last answers")

    def _settle(self, settled: list[tuple[asyncio.Future[Any], Any]]) -> None:
        for future, answer in settled:
            if not future.done():
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)


def _attempt(call: Callable[[Any], Any], argument: Any) -> Any:
    """Return the call's result or its error; one that has no name becomes the tree's root."""
    try:
        return call(argument)
    except ForedraftError as error:
        return error
    except Exception:
        log.exception("the drafter's engine failed")
        return ForedraftError("the drafter's engine failed")
