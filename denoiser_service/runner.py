"""The denoiser's calls: continuous batching, whatever arrives during a call shares the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from denoiser_service.engine import DenoiserEngine
from foredraft.denoising import Advance, Advanced, DenoiseOpen
from foredraft.pacing.pacer import pace_gauges
from foredraft.rpc.engine_thread import EngineThread, Settled
from foredraft.types import ModelInfo


class Advances:
    """The advances that wait for an engine, one of a session."""

    def __init__(self, engine: DenoiserEngine) -> None:
        self.engine = engine
        self._waiting: dict[int, asyncio.Future[Advanced]] = {}

    @property
    def info(self) -> ModelInfo:
        """The target model."""
        return self.engine.info

    @property
    def has_work(self) -> bool:
        """Whether advances or prompts wait."""
        return self.engine.has_work

    def patience_s(self) -> float:
        """Return 0: a call waits for no session."""
        return 0.0

    def submit(
        self, handle: int, request: Advance, advanced: asyncio.Future[Advanced], arrived: float
    ) -> None:
        """Queue an advance that arrived at a time of the engine's clock.

        Raise InvalidRequest or PrefixMismatch.
        """
        self.engine.submit(handle, request, arrived)
        self._waiting[handle] = advanced

    def close(self, handle: int) -> None:
        """Free a session."""
        self.engine.close(handle)
        self._waiting.pop(handle, None)

    def step(self) -> Iterator[Sequence[Settled]]:
        """Make one call."""
        outcomes = self.engine.step()
        yield [
            (self._waiting.pop(handle), result)
            for handle, result in outcomes
            if handle in self._waiting
        ]

    def gauges(self) -> dict[str, float]:
        """Return what sessions hold and what was done so far.

        kv_used is what sessions have reserved, of kv_total; kv_shared how many tokens were not
        read because another session had; all three in tokens. pass_s is the sum of all passes'
        seconds, rows that of their rows; a pass makes a call for each session that is in it. Of
        the drafts that were evaluated, steps - calls were accepted. A paced model adds its own.
        """
        kv, counts = self.engine.kv, self.engine.counts
        return {
            "sessions": float(kv.sessions),
            "kv_used": float(kv.used_tokens),
            "kv_total": float(kv.total_tokens),
            "kv_shared": float(kv.shared_tokens),
            "corrupted": float(counts.corrupted),
            "passes": float(counts.passes),
            "pass_s": counts.seconds,
            "rows": float(counts.rows),
            "calls": float(counts.calls),
            "steps": float(counts.steps),
            "drafts": float(counts.drafts),
            **pace_gauges(self.engine.model),
        }


class Runner(EngineThread[Advances]):
    """Lets one event loop use a denoiser engine."""

    def __init__(self, load: Callable[[], DenoiserEngine]) -> None:
        super().__init__("denoiser", lambda: Advances(load()))

    async def open(self, request: DenoiseOpen) -> int:
        """Open a session and return its handle."""
        handle, _ = await self.open_session(lambda it: (it.engine.open(request), None))
        return handle

    async def advance(self, handle: int, request: Advance) -> Advanced:
        """Return the answer to an advance."""
        # Not when the thread gets to it: a call may run until then.
        arrived = time.perf_counter()
        advanced: Advanced = await self.ask(
            lambda advances, it: advances.submit(handle, request, it, arrived)
        )
        return advanced
