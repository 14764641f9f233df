"""The server's side of a stream that is one session: `open` first, then messages until its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError

from foredraft.errors import DeadlineExceeded, ForedraftError, InvalidRequest, Unavailable
from foredraft.rpc.config import ServiceConfig
from foredraft.rpc.engine_thread import EngineThread
from foredraft.rpc.status import errors_as_status
from foredraft.rpc.transport import Role, transport_of
from foredraft.v1 import common_pb2

log = logging.getLogger(__name__)

Req = TypeVar("Req")
Res = TypeVar("Res")


class ServerStream(Generic[Req, Res]):
    """One stream; no two messages are written at the same time. response is its answers' class."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        idle_ttl_s: float,
        response: Callable[..., Res],
    ) -> None:
        self._context, self._idle_ttl_s = context, idle_ttl_s
        self._response = response
        self._writing = asyncio.Lock()

    async def read(self, within_s: float | None = None) -> Req | None:
        """Return the next message, None at the end.

        Raise DeadlineExceeded if none comes within within_s seconds, by default the time after
        which a session is idle; InvalidRequest if it cannot be decoded.
        """
        within_s = self._idle_ttl_s if within_s is None else within_s
        try:
            async with asyncio.timeout(within_s):
                message = await self._context.read()
        except TimeoutError:
            raise DeadlineExceeded(f"no message came for {within_s:g} s") from None
        except DecodeError:
            raise InvalidRequest("the message cannot be decoded", param="message") from None
        return None if message is grpc.aio.EOF else message

    async def write(self, message: Res) -> None:
        """Send a message; raise grpc.aio.BaseError if the peer is gone."""
        async with self._writing:
            await self._context.write(message)

    async def ask_to_move(self, grace_s: float) -> None:
        """Say that the service drains and serves this stream for so long."""
        await self.write(self._response(draining=common_pb2.Draining(grace_ms=int(1e3 * grace_s))))


# What serves a stream until its end, given the message that opened it.
Serve = Callable[[Any, ServerStream[Any, Any]], Awaitable[None]]


class SessionServicer:
    """Serves streams on an engine thread, each as long as it lasts."""

    def __init__(self, role: Role, engine: EngineThread[Any], config: ServiceConfig) -> None:
        """Raise ConfigError where the service's certificate cannot be read."""
        self.service, self.engine, self.config = str(role), engine, config
        self._role = role
        self.transport = transport_of(config.mtls, role)
        self._streams: set[ServerStream[Any, Any]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = False

    @property
    def streams(self) -> int:
        """The number of streams that are open."""
        return len(self._streams)

    async def drain(self, grace_s: float) -> bool:
        """Refuse new streams, ask open ones to move; return whether all ended within grace_s."""
        if not self._draining:
            self._draining = True
            # Not waited for: a peer that reads nothing delays no other.
            notices = (stream.ask_to_move(grace_s) for stream in self._streams)
            self._notices = asyncio.gather(*notices, return_exceptions=True)
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def serve(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        serve: Serve,
        response: Callable[..., Any],
    ) -> None:
        """Serve one stream from its message open on; an error ends it with its status.

        Nobody is refused before that message: grpc.aio has no status for a client that writes to
        an ended stream (see token.py).
        """
        stream: ServerStream[Any, Any] = ServerStream(context, self.config.idle_ttl_s, response)
        async with errors_as_status(context, self.service):
            first: Any = await stream.read(self.config.open_timeout_s)
            self.transport.check_caller(context, self._role)
            if first is None:
                return
            if first.WhichOneof("message") != "open":
                raise InvalidRequest("the first message must be open", param="open")
            self._check_admits()
            await serve(first.open, stream)

    @asynccontextmanager
    async def answering(self, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """End a unary RPC with the status of an error raised inside, also for who may not call."""
        async with errors_as_status(context, self.service):
            self.transport.check_caller(context, self._role)
            yield

    @contextmanager
    def admitted(self, stream: ServerStream[Any, Any], close: Callable[[], None]) -> Iterator[None]:
        """Count an opened stream as long as it lasts; then close what it has on the engine."""
        try:
            self._check_admits()
            self._streams.add(stream)
            self._empty.clear()
            yield
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._empty.set()
            close()

    def _check_admits(self) -> None:
        if self._draining:
            raise Unavailable(f"the {self.service} is draining")


@asynccontextmanager
async def session_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A session's tasks: the first failure is raised as it is, the others are logged."""
    failures: list[BaseException] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            try:
                yield tasks
            except Exception as error:
                # It ends the tasks, whose own failures the group names before it.
                failures.append(error)
                raise
    except BaseExceptionGroup as group:
        failures += [error for error in group.exceptions if error not in failures]
        first, *others = failures
        for other in others:
            expected = isinstance(other, ForedraftError | grpc.aio.BaseError)
            log.error("a session also failed: %r", other, exc_info=None if expected else other)
        raise first from None
