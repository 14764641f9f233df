"""What a session does about a lost replica of its target: how often, and for how long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from foredraft.errors import (
    CorruptModelOutput,
    DeadlineExceeded,
    ForedraftError,
    PrefixMismatch,
    Unavailable,
)
from orchestrator.config import RetryConfig

log = logging.getLogger(__name__)

# What another replica, or the same one with the full prefix, can put right.
LOST = (Unavailable, PrefixMismatch, DeadlineExceeded, CorruptModelOutput)


class Attempts:
    """How often a session may lose its replica in a row, and how long it may wait for one."""

    def __init__(self, peer: str, retry: RetryConfig, clock: Callable[[], float]) -> None:
        self._peer, self._retry, self._clock = peer, retry, clock
        self._losses = 0
        self._refusals = 0
        self._waits_since = 0.0

    async def lost(self, error: ForedraftError) -> None:
        """Count a lost replica; raise `error` if it was the last that may be."""
        self._losses += 1
        self._refusals = 0
        if self._losses > self._retry.attempts:
            raise error
        log.warning("%s lost (%s), attempt %d", self._peer, error, self._losses)
        # The first attempt elsewhere is made at once: the others may be well.
        await asyncio.sleep(self._retry.pause_s(self._losses - 1))

    async def not_opened(self, error: ForedraftError) -> None:
        """Wait before the next open; raise `error` where that has gone on for too long.

        A replica that answers and then fails is another matter than one that is not there yet.
        """
        if not self._refusals:
            self._waits_since = self._clock()
            log.warning("no %s (%s): waiting for one", self._peer, error)
        self._refusals += 1
        if self._clock() - self._waits_since >= self._retry.wait_s:
            raise error
        await asyncio.sleep(self._retry.pause_s(self._refusals - 1))
