"""The client's side: one channel to a replica, and its sessions' streams."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar

import grpc

from foredraft.errors import CorruptModelOutput, DeadlineExceeded, ForedraftError, Unavailable
from foredraft.rpc import options
from foredraft.rpc.config import NO_DELAY, LinkConfig
from foredraft.rpc.delayed import DelayedCall
from foredraft.rpc.status import error_of
from foredraft.rpc.token import shown
from foredraft.rpc.transport import PLAIN_TEXT, Role, Transport

Req = TypeVar("Req")
Res = TypeVar("Res")


class ClientStream(ABC, Generic[Req, Res]):
    """One session on one replica; every failure is an error of foredraft.errors."""

    def __init__(self, service: str, call: Any) -> None:
        self._service, self._call = service, call
        self._draining = False
        # gRPC takes one message at a time.
        self._writing = asyncio.Lock()
        self._on_break: Callable[[], None] = lambda: None

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""
        return self._draining

    def delay(self, link: LinkConfig) -> None:
        """Put a delayed link under the stream; before start."""
        self._call = DelayedCall(self._call, link)

    @abstractmethod
    async def start(self) -> None:
        """Send open and wait for its answer."""

    async def close(self) -> None:
        """End the session on the replica; never raises."""
        self._call.cancel()

    def on_end(self, call: Callable[[], None]) -> None:
        """Call this once the stream has ended, for whatever reason."""
        self._call.add_done_callback(lambda _: call())

    def on_break(self, call: Callable[[], None]) -> None:
        """Call this before an error is raised because the replica cannot be reached."""
        self._on_break = call

    async def _write(self, message: Req) -> None:
        """Send a message; cancelling it ends the stream."""
        async with self._writing:
            await self._done(self._call.write(message))

    async def _read(self) -> Res:
        """Return the next answer, noting a request to move; cancelling it ends the stream."""
        while True:
            answer = await self._done(self._call.read())
            if answer is grpc.aio.EOF:
                raise await self._ended()
            if answer.WhichOneof("message") != "draining":
                return answer  # type: ignore[no-any-return]
            self._draining = True

    async def _read_kind(self, kind: str) -> Res:
        """Return the next answer; raise CorruptModelOutput unless it is of a kind."""
        answer: Any = await self._read()
        if (got := answer.WhichOneof("message")) != kind:
            raise CorruptModelOutput(f"the {self._service} answered {got} where {kind} was due")
        return answer  # type: ignore[no-any-return]

    async def _done(self, operation: Awaitable[Any]) -> Any:
        """Return what a read or a write gives; raise what the status of an ended stream means."""
        try:
            return await operation
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._ended() from None
        except asyncio.CancelledError:
            # Our own task's cancellation goes on; the call's means that the stream was closed.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Unavailable("the session is closed") from None

    async def _ended(self) -> ForedraftError:
        """Return what the status of a call that has ended stands for."""
        code = await self._call.code()
        if code is grpc.StatusCode.UNAVAILABLE:
            self._on_break()
        if code is grpc.StatusCode.OK:
            return Unavailable(f"the {self._service} ended the session")
        return error_of(code, await self._call.details(), await self._call.trailing_metadata())


# A replica that runs takes a connection sooner; one that is stopped never does.
_CONNECT_S = 2.0

S = TypeVar("S", bound=ClientStream[Any, Any])


class ServiceClient(Generic[S]):
    """One replica; its sessions share a channel. Make it inside a running event loop.

    peer is the role that the replica must have where the transport can tell; every call shows the
    token.
    """

    peer: Role

    def __init__(
        self,
        address: str,
        open_timeout_s: float = 60.0,
        link: LinkConfig = NO_DELAY,
        transport: Transport = PLAIN_TEXT,
        token: str = "",
    ) -> None:
        self.address = address
        self._link = link
        self._open_timeout_s = open_timeout_s
        self.channel = transport.channel(address, self.peer, options.CHANNEL)
        self.metadata = shown(token)
        self._was_connected = self._is_broken = False
        self._streams = 0
        self._retired: asyncio.Task[None] | None = None
        self._unused = asyncio.Event()
        self._unused.set()

    @property
    def num_sessions(self) -> int:
        """How many of its sessions are open, or being opened."""
        return self._streams

    @property
    def lost(self) -> bool:
        """Whether there was a connection and is none; that to a peer that stalls is lost in 1.4 s.

        A lost connection's streams end a moment before its channel does.
        """
        state = self.channel.get_state()
        return self._is_broken or (
            self._was_connected and state is not grpc.ChannelConnectivity.READY
        )

    async def close(self) -> None:
        """Close the channel and every session on it."""
        await self.channel.close()

    def retire(self) -> None:
        """Close the channel once its last session has ended."""
        if self._retired is None:
            self._retired = asyncio.create_task(self._close_unused())

    async def _close_unused(self) -> None:
        await self._unused.wait()
        await self.close()

    async def _start(self, stream: S) -> S:
        """Return the stream once it is open; it is closed if that fails."""
        self._streams += 1
        self._unused.clear()
        if self._link != NO_DELAY:
            stream.delay(self._link)
        stream.on_end(self._stream_ended)
        stream.on_break(self._stream_broke)
        try:
            async with asyncio.timeout(self._open_timeout_s):
                await self._connected()
                await stream.start()
        except TimeoutError:
            await stream.close()
            raise DeadlineExceeded("the session was not opened in time") from None
        except BaseException:
            await stream.close()
            raise
        return stream

    async def _connected(self) -> None:
        """Wait for the connection; raise Unavailable where there is none within _CONNECT_S."""
        gone = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
        try:
            async with asyncio.timeout(_CONNECT_S):
                while True:
                    state = self.channel.get_state(try_to_connect=True)
                    if state is grpc.ChannelConnectivity.READY:
                        self._was_connected = True
                        return
                    if state in gone:
                        raise Unavailable("the replica refuses connections")
                    await self.channel.wait_for_state_change(state)
        except TimeoutError:
            raise Unavailable("the replica takes no connections") from None

    def _stream_broke(self) -> None:
        self._is_broken = True

    def _stream_ended(self) -> None:
        self._streams -= 1
        if not self._streams:
            self._unused.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
