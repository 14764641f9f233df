"""A session's place at the verifiers: opened, moved when one drains, found again when lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from foredraft.errors import (
    CorruptModelOutput,
    DeadlineExceeded,
    Overloaded,
    Unavailable,
)
from foredraft.lease import Grant, LeaseEnded, LedRound
from foredraft.messages import Round
from foredraft.types import Timings
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.attempts import LOST, Attempts
from orchestrator.drive.closing import BackgroundCloser
from orchestrator.drive.lease import LeaseClient
from orchestrator.ports import VerifierPort, VerifyStream
from orchestrator.session.commit import Step
from orchestrator.session.session import Session
from orchestrator.waiting_line import Admit

log = logging.getLogger(__name__)


class Verifying:
    """Gets verdicts for one session, from whichever replica is there to give them."""

    def __init__(
        self,
        port: VerifierPort,
        session: Session,
        lease: LeaseClient,
        config: OrchestratorConfig,
        max_k: int,
        self_draft: int,
        closer: BackgroundCloser,
        admit: Admit,
        clock: Callable[[], float],
    ) -> None:
        self._port = port
        self._session = session
        self._lease = lease
        self._config = config
        self._max_k = max_k
        self._self_draft = self_draft
        self._closer = closer
        self._admit = admit
        self._clock = clock
        self._stream: VerifyStream | None = None
        self._anchored = False
        self._opens = 0

    @property
    def was_open(self) -> bool:
        """Whether a verifier had room for the session."""
        return self._opens > 0

    @property
    def moves(self) -> int:
        """How many times the session changed its replica or its stream."""
        return max(0, self._opens - 1)

    @property
    def must_move(self) -> bool:
        """Whether the session should open anew, and no attempt to has failed.

        Its replica asked it to move, or was not asked for features that the drafter needs.
        """
        if self._stream is None or self._anchored:
            return False
        return self._stream.draining or self._session.features_due

    async def open(self) -> None:
        """Open the new session once it is admitted; a lost replica is retried."""
        await self._admit(self._try_to_open)

    async def _try_to_open(self) -> None:
        attempts = Attempts("verifier", self._config.verifier_retry, self._clock)
        while self._stream is None:
            try:
                self._stream = await self._open()
            except LOST as error:
                await attempts.not_opened(error)

    async def move(self) -> None:
        """Open the session elsewhere; if none accepts it, stay while the old replica serves it."""
        old = self._stream
        try:
            self._stream = await self._open()
        except (*LOST, Overloaded) as error:
            log.info("session stays on its verifier: %s", error)
            self._anchored = True
            return
        if old is not None:
            self._closer.close(old)

    async def verify(self, request: Round) -> tuple[Step, Timings]:
        """Return the step that the verdict on a round makes, and the verifier's timings.

        When the replica is lost, the session is opened on another one with the committed prefix and
        the round is sent again, under a new number, so that an old verdict cannot count for it.
        Raises the last error after config.verifier_retry.attempts lost replicas in a row, or where
        none takes the session within its wait_s.
        """
        attempts = Attempts("verifier", self._config.verifier_retry, self._clock)
        while True:
            if self._stream is None:
                try:
                    self._stream = await self._open()
                except (*LOST, Overloaded) as error:
                    # Overloaded, too: this request was admitted before.
                    await attempts.not_opened(error)
                    continue
                # The lost round's draft, if it had one, is at hand again.
                request = self._session.next_round(self._config.fallback_steps)
            try:
                return await self._verdict(self._stream, request)
            except LOST as error:
                self._lose()
                await attempts.lost(error)

    async def led_round(self, grant: Grant | None) -> tuple[Step, LedRound] | LeaseEnded | None:
        """Return the next round if the verifier leads it, as LeaseClient.next_led decides.

        None, too, if the verifier is lost: the next round opens the session elsewhere.
        """
        try:
            async with asyncio.timeout(self._config.verify_timeout_s):
                answer = await self._lease.next_led(grant)
            if isinstance(answer, LedRound):
                return self._session.led_round_arrived(answer), answer
            return answer
        except TimeoutError:
            log.warning("verifier lost (no round in time while it held a lease)")
        except LOST as error:
            log.warning("verifier lost (%s)", error)
        self._lose()
        return None

    def close(self) -> None:
        """Start closing the stream."""
        if self._stream is not None:
            self._closer.close(self._stream)
            self._stream = None
        self._lease.verifier_closed()

    async def _open(self) -> VerifyStream:
        try:
            async with asyncio.timeout(self._config.open_timeout_s):
                stream = await self._port.open(
                    self._session.verify_open(
                        self._max_k, self._config.acceptance, self._self_draft
                    )
                )
        except TimeoutError:
            raise DeadlineExceeded("no verifier took the session in time") from None
        try:
            self._session.verifier_opened(stream.model)
        except Unavailable:
            self._closer.close(stream)
            raise
        self._anchored = False
        self._lease.verifier_opened(stream)
        self._opens += 1
        return stream

    async def _verdict(self, stream: VerifyStream, request: Round) -> tuple[Step, Timings]:
        try:
            async with asyncio.timeout(self._config.verify_timeout_s):
                verdict = await stream.verify(request)
        except TimeoutError:
            raise DeadlineExceeded("the verifier did not answer in time") from None
        step = self._session.verdict_arrived(verdict)
        if step is None:
            raise CorruptModelOutput("the verifier answered another round than the one asked")
        return step, verdict.timings

    def _lose(self) -> None:
        self._session.verifier_lost()
        self.close()
