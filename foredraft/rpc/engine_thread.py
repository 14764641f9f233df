"""One thread owns an engine; asyncio code asks it through futures.

The thread sleeps on a queue while its engine has nothing to do, so a lone request starts at once,
and what arrives during a step shares the next one.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from foredraft.errors import ForedraftError, Unavailable
from foredraft.memory import give_back_freed
from foredraft.rpc.busy import BusyMeter
from foredraft.types import ModelInfo

log = logging.getLogger(__name__)

# An asked future, and its result or error.
Settled = tuple[asyncio.Future[Any], Any]


class Engine(Protocol):
    """A batching policy over a model; all but info and gauges are called by its thread alone."""

    @property
    def info(self) -> ModelInfo:
        """The model."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""

    def patience_s(self) -> float:
        """How many seconds a step with something to do should wait for more, 0: not at all."""

    def step(self) -> Iterable[Sequence[Settled]]:
        """Run one batch; yield what it settles as soon as it is known."""

    def close(self, handle: int) -> None:
        """Free a session; closing twice is harmless."""

    def gauges(self) -> Mapping[str, float]:
        """Return what only this engine counts, and `sessions`."""


E = TypeVar("E", bound=Engine)
# Gives a request to the engine, whose later step settles the future.
Submit = Callable[[E, asyncio.Future[Any]], None]
T = TypeVar("T")


class EngineThread(Generic[E]):
    """Loads an engine in a thread of its own and runs it there; use it from one event loop."""

    def __init__(self, service: str, load: Callable[[], E]) -> None:
        self._service, self._load = service, load
        self._commands: queue.SimpleQueue[Callable[[E], Any] | None] = queue.SimpleQueue()
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._busy = BusyMeter()
        self._engine: E | None = None
        self._thread: threading.Thread | None = None
        self._ended = False
        self.waiting = 0
        """Requests that wait for a step to answer them."""

    async def start(self) -> None:
        """Load the engine; raise what loading raised."""
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name=self._service, daemon=True
        )
        self._thread.start()
        try:
            await ready
        except BaseException:
            self._commands.put(None)
            raise

    @property
    def engine(self) -> E:
        """The engine; raise Unavailable unless it is loaded and its thread serves."""
        if self._engine is None or self._ended:
            raise Unavailable(f"the {self._service} is not running")
        return self._engine

    @property
    def info(self) -> ModelInfo:
        """The model; raise Unavailable as `engine` does."""
        return self.engine.info

    def stats(self) -> dict[str, float]:
        """Return the load: what autoscaling, metrics and /health look at.

        busy is the thread's share of the last seconds, busy_s all its busy time, queue the requests
        that wait, sessions the engine's; the others are of this engine alone.
        """
        gauges = {} if self._engine is None else self._engine.gauges()
        busy = self._busy.fraction(time.monotonic())
        queue = float(self.waiting)
        return {"busy": busy, "busy_s": self._busy.total_s, "queue": queue, **gauges}

    def call(self, run: Callable[[E], T]) -> asyncio.Future[T]:
        """Run run(engine) in the thread, between two steps; the future gets what it returns."""
        future = self._future()
        self._commands.put(lambda engine: self._post([(future, self._attempt(run, engine))]))
        return future

    def ask(self, submit: Submit[E]) -> asyncio.Future[Any]:
        """Run submit(engine, future) in the thread; a later step settles the future."""
        return self.ask_all([submit])[0]

    def ask_all(self, submits: Sequence[Submit[E]]) -> list[asyncio.Future[Any]]:
        """Run each submit(engine, future) in the thread, no step between; later steps settle."""
        asked = [(submit, self._future()) for submit in submits]
        self.waiting += len(asked)

        for _, future in asked:
            future.add_done_callback(self._answered)
        self._commands.put(lambda engine: self._submit(engine, asked))
        return [future for _, future in asked]

    async def open_session(self, run: Callable[[E], tuple[int, T]]) -> tuple[int, T]:
        """Run what opens a session; return its handle and answer."""
        opening = self.call(run)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The engine may open it all the same: nothing else would close it.
            opening.add_done_callback(self._close_opened)
            raise

    def close(self, handle: int) -> None:
        """Free a session soon; never waits, never raises."""
        self._commands.put(lambda engine: self._attempt(lambda it: it.close(handle), engine))

    async def stop(self) -> None:
        """End the thread after its current step; what waits fails as Unavailable."""
        if self._thread is not None:
            self._commands.put(None)
            await asyncio.to_thread(self._thread.join)
            self._fail_unanswered()

    def _future(self) -> asyncio.Future[Any]:
        """Return a future that fails when the thread ends; raise Unavailable if it has."""
        _ = self.engine
        future: asyncio.Future[Any] = self._loop.create_future()
        self._unanswered.add(future)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: asyncio.Future[Any]) -> None:
        self._unanswered.discard(future)
        # Nothing may be left to await the error.
        _ = future.cancelled() or future.exception()

    def _answered(self, future: asyncio.Future[Any]) -> None:
        self.waiting -= 1

    def _close_opened(self, opening: asyncio.Future[Any]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.close(opening.result()[0])

    def _fail_unanswered(self) -> None:
        for future in tuple(self._unanswered):
            _settle([(future, Unavailable(f"the {self._service} stopped"))])

    # Everything below runs in the thread.

    def _run(self, ready: asyncio.Future[None]) -> None:
        try:
            self._engine = engine = self._load()
            give_back_freed()
        except BaseException as error:  # noqa: BLE001 - whatever it was is the caller's
            self._ended = True
            self._post([(ready, error)])
            return
        self._post([(ready, None)])
        try:
            self._serve(engine)
        except BaseException:
            log.exception("the %s's engine failed", self._service)
        finally:
            self._ended = True
            self._on_loop(self._fail_unanswered)

    def _serve(self, engine: E) -> None:
        while True:
            # None waits for a command.
            wait_s = engine.patience_s() if self._commands.empty() and engine.has_work else None
            if wait_s == 0:
                started = time.monotonic()
                for settled in engine.step():
                    # Most passes settle nothing, and the event loop would wake for the GIL alone.
                    if settled:
                        self._post(settled)
                self._busy.add(started, time.monotonic())
                continue
            try:
                command = self._commands.get(timeout=wait_s)
            except queue.Empty:
                continue
            if command is None:
                return
            command(engine)

    def _submit(self, engine: E, asked: Sequence[tuple[Submit[E], asyncio.Future[Any]]]) -> None:
        for submit, future in asked:
            error = self._attempt(partial(_submitted, submit, future), engine)
            if error is not None:
                self._post([(future, error)])

    def _attempt(self, run: Callable[[E], T], engine: E) -> T | ForedraftError:
        """Return the result or the error; one that has no name becomes the tree's root."""
        try:
            return run(engine)
        except ForedraftError as error:
            return error
        except Exception:
            log.exception("the %s's engine failed", self._service)
            return ForedraftError(f"the {self._service}'s engine failed")

    def _post(self, settled: Sequence[Settled]) -> None:
        self._on_loop(_settle, settled)

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            log.info("the event loop ended before the %s's last answers", self._service)


def _submitted(submit: Submit[E], future: asyncio.Future[Any], engine: E) -> None:
    submit(engine, future)


def _settle(settled: Sequence[Settled]) -> None:
    for future, answer in settled:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
