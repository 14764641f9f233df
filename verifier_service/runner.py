"""One worker thread owns the engine; asyncio code asks it through futures.

The worker sleeps on a queue while nothing is pending, so a lone round starts at once, and whatever
arrives during a forward shares the next one.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from foredraft.errors import ForedraftError, Unavailable
from foredraft.rpc.busy import BusyMeter
from foredraft.types import ModelInfo, Round, SamplingParams, Verdict, VerifyOpen
from verifier_service.rules.logits import Guide
from verifier_service.targets.engine import VerifierEngine
from verifier_service.targets.scores import scores

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stats:
    """What autoscaling, metrics and tests look at.

    kv_used is what sessions have reserved, of kv_total; kv_shared how many tokens were not read
    since the start because another session had; all three in tokens. preempted counts sessions
    that lost their KV to another one.
    """

    sessions: int
    kv_used: int
    kv_total: int
    kv_shared: int
    preempted: int
    queue: int
    busy: float
    rounds: int
    corrupted: int


class _Command(NamedTuple):
    """What the worker should do; its future gets the error and, if it answers, the result."""

    run: Callable[[], Any]
    future: asyncio.Future[Any] | None
    answers: bool = True


class Runner:
    """Starts the worker, which first makes the engine (loading takes seconds, off the loop)."""

    def __init__(self, make_engine: Callable[[], VerifierEngine]) -> None:
        self._make_engine = make_engine
        self._loop = asyncio.get_running_loop()
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._waiting: dict[int, asyncio.Future[Verdict]] = {}
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._engine: VerifierEngine | None = None
        self._busy = BusyMeter()
        self._rounds = 0
        self._failure: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="verifier", daemon=True)
        self._thread.start()

    async def ready(self) -> ModelInfo:
        """Wait until the engine is loaded; raise what its loading raised."""
        await asyncio.shield(self._ready)
        return self.info

    @property
    def engine(self) -> VerifierEngine:
        """The loaded engine; only the worker may call what changes it."""
        if self._engine is None:
            raise Unavailable("the model is still loading")
        return self._engine

    @property
    def info(self) -> ModelInfo:
        """The target model."""
        return self.engine.info

    @property
    def alive(self) -> bool:
        """True while the worker serves."""
        return self._engine is not None and self._failure is None and self._thread.is_alive()

    async def open(self, request: VerifyOpen) -> int:
        """Open a session and return its handle."""
        engine = self.engine
        guide: Guide | None = None
        if request.grammar is not None:
            # Not in the worker: a large grammar takes long, and others' rounds need not wait.
            guide = await asyncio.to_thread(engine.guide, request.grammar)
        opening = self._call(lambda: engine.open(request, guide))
        try:
            handle: int = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The worker may open it all the same: nobody else would close it.
            opening.add_done_callback(self._close_opened)
            raise
        return handle

    async def verify(self, handle: int, request: Round) -> Verdict:
        """Return the verdict on a round."""
        engine = self.engine
        verdict: asyncio.Future[Verdict] = self._loop.create_future()
        self._waiting[handle] = verdict
        self._send(_Command(lambda: engine.submit(handle, request), verdict, answers=False))
        try:
            return await verdict
        finally:
            if self._waiting.get(handle) is verdict:
                del self._waiting[handle]

    async def scores(
        self, text: Sequence[int], sampling: SamplingParams, tokens: Sequence[int]
    ) -> list[float]:
        """Return scores.scores of the target model."""
        model = self.engine.model
        found: list[float] = await self._call(lambda: scores(model, text, sampling, tokens))
        return found

    def close(self, handle: int) -> None:
        """Free a session soon; never waits, never raises."""
        if self._engine is not None:
            engine = self._engine
            self._commands.put(_Command(lambda: engine.close(handle), None))

    def stats(self) -> Stats:
        """Return the state now; busy is the worker's share of the last seconds."""
        kv = self.engine.kv
        return Stats(
            sessions=kv.sessions,
            kv_used=kv.used_tokens,
            kv_total=kv.total_tokens,
            kv_shared=kv.shared_tokens,
            preempted=self.engine.preempted,
            queue=len(self._waiting),
            busy=self._busy.fraction(time.monotonic()),
            rounds=self._rounds,
            corrupted=self.engine.corrupted,
        )

    async def stop(self) -> None:
        """End the worker after its current forward; pending rounds fail as Unavailable."""
        if self._thread.is_alive():
            self._commands.put(None)
            await asyncio.to_thread(self._thread.join)
        self._fail_waiting(Unavailable("the verifier stopped"))

    def _call(self, run: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(_Command(run, future))
        return future

    def _send(self, command: _Command) -> None:
        if self.alive:
            self._commands.put(command)
        elif command.future is not None:
            command.future.set_exception(Unavailable("the verifier's worker ended"))

    def _close_opened(self, opening: asyncio.Future[int]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.close(opening.result())

    def _work(self) -> None:
        """Run in the worker thread: load, then serve until told to stop."""
        try:
            self._engine = self._make_engine()
        except BaseException as error:  # noqa: BLE001  whatever it was belongs to who awaits ready()
            self._failure = error
            self._post(_set_error, self._ready, error)
            return
        self._post(_set_result, self._ready, None)
        try:
            self._serve(self._engine)
        except BaseException as error:
            # A broken engine must not leave rounds hanging.
            log.exception("the verifier's worker ended")
            self._failure = error
            self._post(self._fail_waiting, Unavailable("the verifier's worker failed"))

    def _serve(self, engine: VerifierEngine) -> None:
        while True:
            command = self._next_command(engine)
            while command is not None:
                self._execute(command)
                command = self._next_ready()
            if self._stopping:
                return
            if engine.has_work:
                started = time.monotonic()
                outcomes = engine.step()
                self._busy.add(started, time.monotonic())
                if outcomes:
                    self._post(self._deliver, outcomes)
                engine.tidy()

    def _next_command(self, engine: VerifierEngine) -> _Command | None:
        """Return the next command, waiting for one while the engine has nothing to do."""
        if self._commands.empty() and engine.has_work:
            return None
        command = self._commands.get()
        self._stopping = command is None
        return command

    def _next_ready(self) -> _Command | None:
        """Return a command that is there already."""
        try:
            command = self._commands.get_nowait()
        except queue.Empty:
            return None
        self._stopping = command is None
        return command

    def _execute(self, command: _Command) -> None:
        try:
            result = command.run()
        except ForedraftError as error:
            if command.future is not None:
                self._post(_set_error, command.future, error)
        else:
            if command.future is not None and command.answers:
                self._post(_set_result, command.future, result)

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        """Run call(*args) on the loop; a loop that is closed has nobody left to tell."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def _deliver(self, outcomes: list[Any]) -> None:
        for handle, result in outcomes:
            self._rounds += 1
            future = self._waiting.pop(handle, None)
            if future is None:
                continue
            if isinstance(result, ForedraftError):
                _set_error(future, result)
            else:
                _set_result(future, result)

    def _fail_waiting(self, error: ForedraftError) -> None:
        for future in list(self._waiting.values()):
            _set_error(future, error)
        self._waiting.clear()


def _set_result(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _set_error(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
