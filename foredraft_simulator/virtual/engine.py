"""One engine in virtual time: what foredraft.rpc.engine_thread does, without its thread.

Commands run between two steps, a step begins once there is work and its patience is over, and what
comes during a step waits for the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from foredraft.errors import ForedraftError, Unavailable
from foredraft.rpc.busy import BusyMeter
from foredraft.rpc.engine_thread import Engine, Settled
from foredraft_simulator.virtual.clock import EngineClock

E = TypeVar("E", bound=Engine)
T = TypeVar("T")

# Shorter waits are none: the clock would not move.
_SHORTEST_S = 1e-7


class VirtualEngine(Generic[E]):
    """Runs an engine; host_s is the time of each step beside what the engine itself spends."""

    def __init__(self, service: str, engine: E, clock: EngineClock, host_s: float = 0.0) -> None:
        self._service, self._clock, self._host_s = service, clock, host_s
        self.engine = engine
        self._loop = asyncio.get_running_loop()
        self._commands: deque[Callable[[], None]] = deque()
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._busy = BusyMeter()
        # What will look for something to do, None during a step and while there is nothing.
        self._turn: asyncio.Handle | None = None
        self._step: Iterator[Sequence[Settled]] | None = None
        self._began = 0.0
        self.lost = False
        self.waiting = 0
        self.steps = 0

    @property
    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def call(self, run: Callable[[E], T]) -> asyncio.Future[T]:
        """Run run(engine) between two steps; the future gets what it returns or raises."""
        future = self._future()
        self._command(lambda: _settle(future, self._attempt(run)))
        return future

    def ask(self, submit: Callable[[E, asyncio.Future[Any]], None]) -> asyncio.Future[Any]:
        """Run submit(engine, future) between two steps; a later step settles the future."""
        future = self._future()
        self.waiting += 1
        future.add_done_callback(self._answered)

        def command() -> None:
            failed = self._attempt(lambda engine: submit(engine, future))
            if failed is not None:
                _settle(future, failed)

        self._command(command)
        return future

    async def open_session(self, run: Callable[[E], tuple[int, T]]) -> tuple[int, T]:
        """Run what opens a session; return its handle and answer."""
        opening = self.call(run)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._close_opened)
            raise

    def close(self, handle: int) -> None:
        """Free a session soon."""
        self._command(lambda: self.engine.close(handle))

    def stats(self) -> dict[str, float]:
        """Return the load, as a replica reports it."""
        busy = self._busy.fraction(self._loop.time())
        queue, gauges = float(self.waiting), self.engine.gauges()
        return {"busy": busy, "busy_s": self._busy.total_s, "queue": queue, **gauges}

    def stall(self, seconds: float) -> None:
        """Let the next step take so much longer."""
        self._command(lambda: self._clock.spend(seconds))

    def fail(self) -> None:
        """End at once, as a process that is killed: what waits fails as Unavailable."""
        self.lost = True
        self._commands.clear()
        if self._turn is not None:
            self._turn.cancel()
        for future in tuple(self._unanswered):
            _settle(future, Unavailable(f"the {self._service} is gone"))

    def _future(self) -> asyncio.Future[Any]:
        if self.lost:
            raise Unavailable(f"the {self._service} is gone")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._unanswered[future] = None
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: asyncio.Future[Any]) -> None:
        self._unanswered.pop(future, None)
        # Nothing may be left to await the error.
        _ = future.cancelled() or future.exception()

    def _answered(self, future: asyncio.Future[Any]) -> None:
        self.waiting -= 1

    def _close_opened(self, opening: asyncio.Future[Any]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.close(opening.result()[0])

    def _attempt(self, run: Callable[[E], T]) -> T | ForedraftError:
        try:
            return run(self.engine)
        except ForedraftError as error:
            return error

    def _command(self, command: Callable[[], None]) -> None:
        if self.lost:
            return
        self._commands.append(command)
        if self._step is None:
            if self._turn is not None:
                self._turn.cancel()
            self._turn = self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Run what waits; begin a step if it is time for one."""
        self._turn = None
        while self._commands:
            self._commands.popleft()()
        if not self.engine.has_work:
            return
        wait_s = self.engine.patience_s()
        if wait_s > _SHORTEST_S:
            self._turn = self._loop.call_later(wait_s, self._look)
            return
        self.steps += 1
        self._began = self._loop.time()
        self._step = iter(self.engine.step())
        self._go_on()

    def _go_on(self) -> None:
        """Compute up to the step's next answers, or to its end."""
        assert self._step is not None
        settled = next(self._step, None)
        ahead_s = self._clock.caught_up()
        if settled is not None:
            self._after(ahead_s, self._hand_out, settled)
        else:
            self._after(ahead_s + self._host_s, self._end)

    def _hand_out(self, settled: Sequence[Settled]) -> None:
        if self.lost:
            return
        for future, answer in settled:
            _settle(future, answer)
        self._go_on()

    def _end(self) -> None:
        self._step = None
        self._busy.add(self._began, self._loop.time())
        if not self.lost:
            self._look()

    def _after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        if seconds > 0:
            self._loop.call_later(seconds, call, *arguments)
        else:
            call(*arguments)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
