"""The part of an ingress replica that sends sessions to drafters, with a canary or without."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from deployments.canary.arms import Arms, OneArm, TwoArms
from deployments.canary.outcome import newest_key, trial_key
from deployments.canary.trial import Board, Trial
from deployments.observability.requests import Sink
from deployments.pools import DrafterPool
from orchestrator.ports import DrafterPort

# Serve's own logger: a replica writes it to a file.
log = logging.getLogger("ray.serve")

_INTERVAL_S = 1.0


class Place(NamedTuple):
    """Where an ingress replica is: its application and its own name, what the cluster keeps, and
    where metrics go.
    """

    application: str
    instance: str
    board: Board
    sinks: Sequence[Sink]


class Routing:
    """Gives sessions their drafters.

    canary_runs is true where a replica of the canary runs; settle has the application follow a
    verdict, and blocks.
    """

    def __init__(
        self,
        stable: DrafterPort,
        canary: DrafterPort,
        canary_runs: Callable[[], Awaitable[bool]],
        settle: Callable[[], None],
        place: Place,
    ) -> None:
        self._stable, self._canary, self._place = stable, canary, place
        self._canary_runs, self._settle = canary_runs, settle
        self._trial: Trial | None = None
        self._watching: asyncio.Task[None] | None = None
        self.arms: Arms = OneArm(stable)

    def follow(self, pool: DrafterPool) -> None:
        """Begin a trial, go on with it, or end it, as a configuration has it."""
        key = trial_key(self._place.application, pool) if pool.canary else ""
        if key == (self._trial.key if self._trial else ""):
            return
        if self._trial is not None:
            self._trial.end()
        if self._watching is not None:
            self._watching.cancel()
        self._trial, self._watching, self.arms = None, None, OneArm(self._stable)
        if pool.canary is not None:
            place = self._place
            self._trial = trial = Trial(key, pool.canary, place.board, place.instance)
            self.arms = TwoArms(self._stable, self._canary, trial, random.random)
            self._watching = asyncio.create_task(self._watch(trial))

    async def _watch(self, trial: Trial) -> None:
        """Take part in a trial until there is a verdict."""
        due = False
        while due or trial.verdict is None:
            try:
                due = due or await self._step(trial)
                if due:
                    # In a thread of its own: it ends this task, too.
                    await asyncio.shield(asyncio.to_thread(self._settle))
                    due = False
            except Exception:
                # The cluster's memory may be away for a moment.
                log.exception("a step of the canary's trial failed")
            await asyncio.sleep(_INTERVAL_S)

    async def _step(self, trial: Trial) -> bool:
        """Take a step; return whether a verdict was given here."""
        place = self._place
        running = trial.running or await self._canary_runs()
        verdict = await asyncio.to_thread(trial.step, time.time(), running)
        described = json.dumps(trial.described() | {"at": time.time()}).encode()
        await asyncio.to_thread(place.board.put, newest_key(place.application), described)
        for sink in place.sinks:
            sink.add(list(trial.samples()))
        if verdict is not None:
            log.warning("the canary is %s: %s", verdict.outcome, verdict.reason)
        return verdict is not None
