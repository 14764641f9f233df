"""One request on denoisers, start to end: opened, advanced, found again if a replica is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from foredraft.denoising import Advance, Advanced
from foredraft.errors import DeadlineExceeded, Overloaded, Unavailable
from orchestrator.config import DenoisingConfig
from orchestrator.drive.attempts import LOST, Attempts
from orchestrator.drive.closing import BackgroundCloser
from orchestrator.ports import DenoiserPort, DenoiseStream
from orchestrator.session.denoise import DenoiseSession
from orchestrator.waiting_line import Admit, at_once

log = logging.getLogger(__name__)


class DenoiseEvent(NamedTuple):
    """Tokens that an answer adds to the text, maybe none, and the answer."""

    tokens: tuple[int, ...]
    answer: Advanced


async def denoise(
    session: DenoiseSession,
    port: DenoiserPort,
    config: DenoisingConfig,
    clock: Callable[[], float] = time.monotonic,
    admit: Admit = at_once,
) -> AsyncGenerator[DenoiseEvent, None]:
    """Yield an event for each answer until the session's text has ended.

    Closing or cancelling the generator ends the stream within config.close_timeout_s. Raises
    InvalidRequest or Overloaded when the request is refused, and the denoiser's last error after
    config.retry.attempts lost replicas in a row, or where none takes the session within its wait_s.
    """
    closer = BackgroundCloser()
    place = _Place(port, session, config, closer)
    try:
        attempts = Attempts("denoiser", config.retry, clock)
        while session.finish is None:
            if not place.is_open:
                try:
                    await (place.open() if place.was_open else admit(place.open))
                except LOST as error:
                    await attempts.not_opened(error)
                    continue
                except Overloaded as error:
                    if not place.was_open:
                        raise
                    # This request was admitted before.
                    await attempts.not_opened(error)
                    continue
            if place.must_move:
                await place.move()
            request = session.next_advance(config.calls)
            try:
                answer = await place.advance(request)
                tokens = session.advanced(request, answer)
            except LOST as error:
                place.close()
                await attempts.lost(error)
                continue
            attempts = Attempts("denoiser", config.retry, clock)
            yield DenoiseEvent(tokens, answer)
    finally:
        place.close()
        await closer.wait(config.close_timeout_s)


class _Place:
    """Where a session is open."""

    def __init__(
        self,
        port: DenoiserPort,
        session: DenoiseSession,
        config: DenoisingConfig,
        closer: BackgroundCloser,
    ) -> None:
        self._port, self._session, self._config = port, session, config
        self._closer = closer
        self._stream: DenoiseStream | None = None
        self._anchored = False
        self.was_open = False

    @property
    def is_open(self) -> bool:
        """Whether there is a stream."""
        return self._stream is not None

    @property
    def must_move(self) -> bool:
        """Whether the replica asked the session to move, and no attempt to has failed."""
        return self._stream is not None and self._stream.draining and not self._anchored

    async def open(self) -> None:
        """Open the session on a replica, after its committed blocks."""
        try:
            async with asyncio.timeout(self._config.open_timeout_s):
                stream = await self._port.open(self._session.open_message())
        except TimeoutError:
            raise DeadlineExceeded("no denoiser took the session in time") from None
        try:
            self._session.opened(stream.model)
        except Unavailable:
            self._closer.close(stream)
            raise
        self._stream, self._anchored, self.was_open = stream, False, True

    async def move(self) -> None:
        """Open the session elsewhere; if none accepts it, stay while the old replica serves it."""
        old = self._stream
        try:
            await self.open()
        except (*LOST, Overloaded) as error:
            log.info("session stays on its denoiser: %s", error)
            self._anchored = True
            return
        if old is not None:
            self._closer.close(old)

    async def advance(self, request: Advance) -> Advanced:
        """Return the replica's answer."""
        assert self._stream is not None
        try:
            async with asyncio.timeout(self._config.advance_timeout_s):
                return await self._stream.advance(request)
        except TimeoutError:
            raise DeadlineExceeded("the denoiser did not answer in time") from None

    def close(self) -> None:
        """Start closing the stream, if there is one."""
        if self._stream is not None:
            self._closer.close(self._stream)
            self._stream = None
