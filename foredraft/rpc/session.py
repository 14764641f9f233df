"""The server's side of a stream that is one session: `open` first, then messages until its end."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError

from foredraft.errors import DeadlineExceeded, ForedraftError, InvalidRequest, Unavailable
from foredraft.rpc.config import ServiceConfig
from foredraft.rpc.engine_thread import EngineThread
from foredraft.rpc.status import errors_as_status
from foredraft.v1 import common_pb2

log = logging.getLogger(__name__)

Req = TypeVar("Req")
Res = TypeVar("Res")


class ServerStream(Generic[Req, Res]):
    """One session's stream; no two messages are written at the same time."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any], idle_ttl_s: float) -> None:
        self._context, self._idle_ttl_s = context, idle_ttl_s
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


class SessionServicer(ABC, Generic[Req, Res]):
    """Serves sessions on an engine thread; a stream's end frees its session."""

    def __init__(
        self,
        service: str,
        engine: EngineThread[Any],
        config: ServiceConfig,
        response: Callable[..., Res],
    ) -> None:
        self.service, self.engine, self.config = service, engine, config
        self._response = response
        self._streams: set[ServerStream[Req, Res]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = False

    @property
    def streams(self) -> int:
        """The number of sessions that are open."""
        return len(self._streams)

    async def drain(self, grace_s: float) -> bool:
        """Refuse new sessions, ask open ones to move; return whether all ended within grace_s."""
        if not self._draining:
            self._draining = True
            notice = self._response(draining=common_pb2.Draining(grace_ms=int(1e3 * grace_s)))
            # Not waited for: a peer that reads nothing delays no other.
            notices = (stream.write(notice) for stream in self._streams)
            self._notices = asyncio.gather(*notices, return_exceptions=True)
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def serve(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Serve one session; an error ends the stream with its status."""
        stream: ServerStream[Req, Res] = ServerStream(context, self.config.idle_ttl_s)
        async with errors_as_status(context, self.service):
            first: Any = await stream.read(self.config.open_timeout_s)
            if first is None:
                return
            if first.WhichOneof("message") != "open":
                raise InvalidRequest("the first message must be open", param="open")
            self._check_admits()
            await self.session(first.open, stream)

    @abstractmethod
    async def session(self, opening: Any, stream: ServerStream[Req, Res]) -> None:
        """Serve the session that the message `open` asks for, until its stream ends."""

    @contextmanager
    def admitted(self, handle: int, stream: ServerStream[Req, Res]) -> Iterator[None]:
        """Count an opened session as long as its stream lasts; then free it."""
        try:
            self._check_admits()
            self._streams.add(stream)
            self._empty.clear()
            yield
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._empty.set()
            self.engine.close(handle)

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
