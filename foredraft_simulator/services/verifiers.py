"""A verifier replica, and a session's stream to it, led rounds included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from foredraft.errors import InvalidRequest, Unavailable
from foredraft.lease import DraftSource, Grant, LeaseEnded, LedRound
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.types import ModelInfo
from foredraft_simulator.services.link import IDLE_HOST, Channel, Host, Network
from foredraft_simulator.virtual.engine import VirtualEngine
from verifier_service.drafters import Drafters
from verifier_service.lease import Lease
from verifier_service.runner import Rounds
from verifier_service.targets.pending import NextPlain


class VerifierReplica:
    """One verifier; draining is set once it is to stop."""

    def __init__(
        self, address: str, engine: VirtualEngine[Rounds], host: Host, drafters: Drafters
    ) -> None:
        self.address, self.engine, self.host, self.drafters = address, engine, host, drafters
        self.draining = False

    @property
    def sessions(self) -> int:
        """How many sessions are open."""
        return self.engine.engine.engine.kv.sessions

    @property
    def info(self) -> ModelInfo:
        """The target model."""
        return self.engine.engine.info

    async def open(self, request: VerifyOpen) -> int:
        """Open a session; raise Unavailable while draining, Overloaded without room."""
        if self.draining:
            raise Unavailable("the verifier is draining")
        handle, _ = await self.engine.open_session(lambda it: (it.engine.open(request), None))
        return handle

    async def verify(
        self, handle: int, request: Round, following: NextPlain | None = None
    ) -> Verdict:
        """Return the verdict on a round; the plain round that follows is begun if wanted."""
        arrived = self.engine.now
        verdict: Verdict = await self.engine.ask(
            lambda it, future: it.submit(handle, request, future, arrived, following)
        )
        return verdict


class SimulatedVerifyStream:
    """A VerifyStream and a LeaseStream over a link."""

    def __init__(
        self,
        replica: VerifierReplica,
        there: Channel,
        back: Channel,
        ended: Callable[[SimulatedVerifyStream], None],
    ) -> None:
        self._replica, self._there, self._back = replica, there, back
        self._ended = ended
        self._handle = -1
        self._led: asyncio.Queue[LedRound | LeaseEnded | BaseException] = asyncio.Queue()
        self.model = replica.info

    async def start(self, request: VerifyOpen) -> None:
        """Open the session; it is closed again if nobody waits for the answer."""
        await self._there.cross()
        self._handle = handle = await self._replica.open(request)
        verify = partial(self._replica.verify, handle)
        clock = asyncio.get_running_loop().time
        self._lease = Lease(request, self._replica.drafters, verify, self._report, clock)
        self._leading = asyncio.create_task(self._lease.run())
        self._leading.add_done_callback(self._led_no_more)
        try:
            await self._back.cross()
        except asyncio.CancelledError:
            self._there.send(self._end)
            raise

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""
        return self._replica.draining

    async def verify(self, request: Round) -> Verdict:
        """Return the verdict on request."""
        await self._there.cross()
        if self._lease.active:
            raise InvalidRequest("the verifier holds a lease", param="round")
        verdict = await self._replica.verify(self._handle, request)
        self._lease.decided(request, verdict)
        await self._back.cross()
        return verdict

    async def use_drafter(self, source: DraftSource) -> None:
        """Name the drafter that led rounds are to ask."""
        self._there.send(partial(self._lease.use_drafter, source))

    async def grant(self, grant: Grant) -> None:
        """Start a lease, or replace the rest of the active one."""
        self._there.send(partial(self._lease.grant, grant))

    async def next_led(self) -> LedRound | LeaseEnded:
        """Return the next led round, or the lease's end."""
        if self._replica.engine.lost:
            raise Unavailable("the verifier is gone")
        answer = await self._led.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def close(self) -> None:
        """End the session on the verifier; never raises."""
        self._ended(self)
        await self._there.cross()
        self._end()
        await self._lease.close()

    def _end(self) -> None:
        self._leading.cancel()
        self._replica.engine.close(self._handle)

    async def _report(self, message: LedRound | LeaseEnded) -> None:
        self._back.send(partial(self._led.put_nowait, message))

    def _led_no_more(self, leading: asyncio.Task[None]) -> None:
        if not leading.cancelled() and (error := leading.exception()) is not None:
            self._led.put_nowait(error)


class SimulatedVerifierClient:
    """Opens sessions on one verifier replica, from one host."""

    def __init__(
        self, replica: VerifierReplica | None, network: Network, host: Host = IDLE_HOST
    ) -> None:
        self._replica, self._network, self._host = replica, network, host
        self._streams: set[SimulatedVerifyStream] = set()

    @property
    def num_sessions(self) -> int:
        """How many of its sessions are open."""
        return len(self._streams)

    @property
    def lost(self) -> bool:
        """Whether the replica is known to be gone."""
        return self._replica is None or self._replica.engine.lost

    async def open(self, request: VerifyOpen) -> SimulatedVerifyStream:
        """Open a session; raise Unavailable where the replica is gone."""
        if self._replica is None or self._replica.engine.lost:
            await Channel(self._network).cross()
            raise Unavailable("no verifier at this address")
        there = Channel(self._network, self._replica.host)
        back = Channel(self._network, self._host)
        stream = SimulatedVerifyStream(self._replica, there, back, self._streams.discard)
        await stream.start(request)
        self._streams.add(stream)
        return stream

    def retire(self) -> None:
        """Keep nothing: there is no channel."""
