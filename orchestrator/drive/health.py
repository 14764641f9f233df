"""Whether drafters are asked: by what a session saw of its own, and all sessions of theirs.

A drafter beyond the draft deadline costs a session a few waits before it is left. Without a common
record every new session would pay them again; with it, one session at a time tries the drafters and
the others decode plainly meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orchestrator.breaker import Breaker, BreakerState
from orchestrator.config import BreakerConfig
from orchestrator.controller_state import ControllerState


class DrafterHealth:
    """One session's breaker, and the one that it shares with sessions of its kind."""

    def __init__(
        self, config: BreakerConfig, state: ControllerState, clock: Callable[[], float]
    ) -> None:
        self._config, self._state, self._clock = config, state, clock
        self._own = config.breaker()

    @property
    def failing(self) -> bool:
        """Whether the session's drafter failed since its last draft in time."""
        return self._own.failures > 0

    @property
    def paused(self) -> bool:
        """Whether no drafter is to be opened now."""
        return self._pause_s > 0

    async def until_open(self) -> None:
        """Return when a drafter may be opened; of sessions that share a pause one tries first."""
        while (pause_s := self._pause_s) > 0:  # noqa: ASYNC110 - it is a time that is waited for
            # In steps: the one that tried may have found that all is well.
            await asyncio.sleep(min(pause_s, self._config.cooldown_s))
        if self._common.state(self._clock()) is BreakerState.HALF_OPEN:
            self._state.breaker = self._common.tried(self._clock())

    def lost(self) -> None:
        """Take note that there is no drafter, or that it failed: another one may be well."""
        self._own = self._own.failed(self._clock())

    def missed(self) -> bool:
        """Take note of a draft that was late; return whether to leave the drafter."""
        self.lost()
        self._state.breaker = self._common.failed(self._clock())
        return self._own.state(self._clock()) is BreakerState.OPEN

    def succeeded(self) -> None:
        """Take note of a draft in time."""
        self._own = self._own.succeeded()
        self._state.breaker = self._common.succeeded()

    @property
    def _common(self) -> Breaker:
        return self._state.breaker or self._config.breaker()

    @property
    def _pause_s(self) -> float:
        now = self._clock()
        return max(self._own.wait_s(now), self._common.wait_s(now))
