"""The verifier's rounds: continuous batching, whatever arrives during a forward shares the next."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.pacing.pacer import pace_gauges
from foredraft.rpc.engine_thread import EngineThread, Settled
from foredraft.threads import in_thread
from foredraft.types import ModelInfo, SamplingParams
from verifier_service.rules.logits import GrammarMatcher
from verifier_service.targets.engine import VerifierEngine
from verifier_service.targets.pending import NextPlain
from verifier_service.targets.scores import scores


class Rounds:
    """The rounds that wait for an engine, one of a session."""

    def __init__(self, engine: VerifierEngine) -> None:
        self.engine = engine
        self._waiting: dict[int, asyncio.Future[Verdict]] = {}
        self._rounds = self._kept = 0

    @property
    def info(self) -> ModelInfo:
        """The target model."""
        return self.engine.info

    @property
    def has_work(self) -> bool:
        """Whether rounds or prefills wait."""
        return self.engine.has_work

    def patience_s(self) -> float:
        """How long the next forward should wait for rounds that are about to come."""
        return self.engine.patience_s()

    def submit(
        self,
        handle: int,
        request: Round,
        verdict: asyncio.Future[Verdict],
        arrived: float,
        following: NextPlain | None = None,
    ) -> None:
        """Queue a round that arrived at a time of the engine's clock.

        Raise InvalidRequest or PrefixMismatch.
        """
        self.engine.submit(handle, request, arrived, following)
        self._waiting[handle] = verdict

    def close(self, handle: int) -> None:
        """Free a session."""
        self.engine.close(handle)
        self._waiting.pop(handle, None)

    def step(self) -> Iterator[Sequence[Settled]]:
        """Run one forward."""
        outcomes = self.engine.step()
        # Nobody waits yet for a round that the engine began by itself: it is asked for later.
        settled = [
            (self._waiting.pop(handle), result)
            for handle, result in outcomes
            if handle in self._waiting
        ]
        self._rounds += len(settled)
        self._kept += sum(each.accepted for _, each in settled if isinstance(each, Verdict))
        yield settled
        # Done between two steps, where it delays no round.
        self.engine.compact()

    def gauges(self) -> dict[str, float]:
        """Return what sessions hold and what was done so far.

        kv_used is what sessions have reserved, of kv_total; kv_wanted what one that waits for room
        needs beside it; kv_shared how many tokens were not read because another session had; all
        in tokens. preempted counts sessions that lost their KV to another one, corrupted rounds
        whose logits were not finite. pass_s is the sum of all passes' seconds, rows that of their
        rows; of the draft tokens offered, so many were bought, and of those kept; own_... are of
        the drafts that sessions make themselves. price_... are the seconds of the last verdict. A
        paced model adds its own.
        """
        kv, counts, price = self.engine.kv, self.engine.counts, self.engine.price
        return {
            "sessions": float(kv.sessions),
            "kv_used": float(kv.used_tokens),
            "kv_wanted": float(kv.wanted_tokens),
            "kv_total": float(kv.total_tokens),
            "kv_shared": float(kv.shared_tokens),
            "preempted": float(self.engine.preempted),
            "rounds": float(self._rounds),
            "kept": float(self._kept),
            "corrupted": float(self.engine.corrupted),
            "passes": float(counts.passes),
            "pass_s": counts.seconds,
            "rows": float(counts.rows),
            "offered": float(counts.offered),
            "bought": float(counts.bought),
            "own_bought": float(counts.own_bought),
            "own_kept": float(counts.own_kept),
            "price_pass_s": price.pass_s,
            "price_row_s": price.row_s,
            "price_draft_s": price.draft_s,
            **pace_gauges(self.engine.model),
        }


class Runner(EngineThread[Rounds]):
    """Lets one event loop use a verifier engine."""

    def __init__(self, load: Callable[[], VerifierEngine]) -> None:
        super().__init__("verifier", lambda: Rounds(load()))
        # One at a time: they leave the other cores to the model.
        self._grammars = ThreadPoolExecutor(1, "grammars", initializer=_give_way)

    async def open(self, request: VerifyOpen) -> int:
        """Open a session and return its handle."""
        engine = self.engine.engine
        matcher: GrammarMatcher | None = None
        if request.grammar is not None:
            # Not in the thread: a large grammar takes long, and others' rounds need not wait.
            matcher = await in_thread(partial(engine.matcher, request.grammar), self._grammars)
        handle, _ = await self.open_session(lambda _: (engine.open(request, matcher), None))
        return handle

    async def stop(self) -> None:
        """End the thread after its current step; what waits fails as Unavailable."""
        await super().stop()
        self._grammars.shutdown(wait=False, cancel_futures=True)

    async def verify(
        self, handle: int, request: Round, following: NextPlain | None = None
    ) -> Verdict:
        """Return the verdict on a round; the plain round that follows is begun if wanted."""
        # Not when the thread gets to it: a pass may run until then.
        arrived = time.perf_counter()
        verdict: Verdict = await self.ask(
            lambda rounds, it: rounds.submit(handle, request, it, arrived, following)
        )
        return verdict

    async def scores(
        self, text: Sequence[int], sampling: SamplingParams, tokens: Sequence[int]
    ) -> list[float]:
        """Return scores.scores of the target model."""
        return await self.call(lambda it: scores(it.engine.model, text, sampling, tokens))


def _give_way() -> None:
    """Let every other thread run first; only Linux has a niceness for one thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)
