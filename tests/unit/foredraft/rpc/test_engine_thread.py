"""One thread owns an engine: order, errors, cancelled callers, its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from foredraft.errors import ForedraftError, InvalidRequest, Overloaded, Unavailable
from foredraft.rpc.engine_thread import EngineThread, Settled
from foredraft.types import ModelInfo


class Echo:
    """Answers what was asked, everything that waits in one step; its gate holds steps up."""

    info = ModelInfo(16, 64, "", "", "echo")

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[str], str]] = []
        self.steps: list[int] = []
        self.open: set[int] = set()
        self.gate, self.inside = threading.Event(), threading.Event()
        self.gate.set()
        self.fails = False
        self.patience = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self.waiting)

    def patience_s(self) -> float:
        # For two at least.
        return self.patience if len(self.waiting) < 2 else 0.0

    def submit(self, answer: asyncio.Future[str], text: str) -> None:
        if not text:
            raise InvalidRequest("nothing to say")
        self.waiting.append((answer, text))

    def begin(self, handle: int) -> tuple[int, str]:
        self.open.add(handle)
        return handle, "opened"

    def close(self, handle: int) -> None:
        self.open.discard(handle)

    def step(self) -> Iterator[Sequence[Settled]]:
        self.inside.set()
        assert self.gate.wait(10)
        if self.fails:
            raise RuntimeError("out of memory")
        asked, self.waiting = self.waiting, []
        self.steps.append(len(asked))
        for each in asked:
            yield [each]

    def gauges(self) -> dict[str, float]:
        return {"sessions": float(len(self.open))}


@asynccontextmanager
async def running(engine: Echo) -> AsyncIterator[EngineThread[Echo]]:
    thread = EngineThread("echo", lambda: engine)
    await thread.start()
    try:
        yield thread
    finally:
        engine.gate.set()
        await thread.stop()


def ask(thread: EngineThread[Echo], text: str) -> asyncio.Future[str]:
    return thread.ask(lambda engine, answer: engine.submit(answer, text))


async def test_what_waits_shares_a_step() -> None:
    engine = Echo()
    async with running(engine) as thread:
        engine.gate.clear()
        first = ask(thread, "a")
        await asyncio.to_thread(engine.inside.wait, 10)
        others = [ask(thread, text) for text in "bcd"]
        assert {"queue": 4.0, "sessions": 0.0}.items() <= thread.stats().items()
        engine.gate.set()
        assert await asyncio.gather(first, *others) == ["a", "b", "c", "d"]
        assert engine.steps[0] + sum(engine.steps[1:]) == 4
        assert len(engine.steps) <= 3
        assert thread.waiting == 0


async def test_a_patient_engine_waits_for_more_and_not_for_ever() -> None:
    engine = Echo()
    engine.patience = 10.0
    async with running(engine) as thread:
        first = ask(thread, "a")
        await thread.call(lambda _: None)
        second = ask(thread, "b")
        assert (await first, await second) == ("a", "b")
        assert engine.steps == [2]
        engine.patience = 0.01
        alone = ask(thread, "c")
        # Time passes, and with it the patience.
        await thread.call(lambda engine: setattr(engine, "patience", 0.0))
        assert await alone == "c"


async def test_a_named_error_is_the_callers_and_another_one_gets_a_name() -> None:
    async with running(Echo()) as thread:
        with pytest.raises(InvalidRequest):
            await ask(thread, "")
        with pytest.raises(Overloaded):
            await thread.call(lambda _: (_ for _ in ()).throw(Overloaded("full")))
        with pytest.raises(ForedraftError, match="the echo's engine failed"):
            await thread.call(lambda _: 1 / 0)
        assert await ask(thread, "a") == "a"
        assert thread.waiting == 0


async def test_an_open_whose_caller_has_gone_is_closed() -> None:
    engine = Echo()
    async with running(engine) as thread:
        engine.gate.clear()
        held = ask(thread, "a")
        await asyncio.to_thread(engine.inside.wait, 10)
        opening = asyncio.create_task(thread.open_session(lambda it: it.begin(7)))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        engine.gate.set()
        await held
        opened = await thread.open_session(lambda it: it.begin(8))
        assert opened == (8, "opened")
        assert await thread.call(lambda it: set(it.open)) == {8}
        thread.close(8)
        assert await thread.call(lambda it: set(it.open)) == set()


async def test_stopping_fails_what_waits_and_what_comes_after() -> None:
    engine = Echo()
    async with running(engine) as thread:
        engine.gate.clear()
        held = ask(thread, "a")
        await asyncio.to_thread(engine.inside.wait, 10)
        late = ask(thread, "b")
        stopping = asyncio.create_task(thread.stop())
        await asyncio.sleep(0)
        engine.gate.set()
        await stopping
        assert await held == "a"
        with pytest.raises(Unavailable):
            await late
        with pytest.raises(Unavailable):
            ask(thread, "c")
        with pytest.raises(Unavailable):
            _ = thread.info
        await thread.stop()


async def test_a_step_that_fails_ends_the_thread_and_hangs_nobody() -> None:
    engine = Echo()
    engine.fails = True
    async with running(engine) as thread:
        with pytest.raises(Unavailable):
            async with asyncio.timeout(10):
                await ask(thread, "a")
        with pytest.raises(Unavailable):
            _ = thread.engine
        assert thread.stats()["queue"] == 0


async def test_loading_fails_for_its_caller_alone() -> None:
    def load() -> Echo:
        raise InvalidRequest("no such model")

    thread: EngineThread[Echo] = EngineThread("echo", load)
    with pytest.raises(Unavailable):
        ask(thread, "a")
    with pytest.raises(InvalidRequest):
        await thread.start()
    with pytest.raises(Unavailable):
        ask(thread, "a")
    await thread.stop()
