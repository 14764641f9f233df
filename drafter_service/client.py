"""The drafter's client: orchestrator's DrafterPort over one gRPC channel."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

import grpc

from foredraft import limits
from foredraft.codec import records as codec
from foredraft.errors import (
    CorruptModelOutput,
    ForedraftError,
    InvalidRequest,
    Unavailable,
    from_status,
)
from foredraft.features import wire as features
from foredraft.types import DraftBlock, DraftOpen, DraftOpened, Propose
from foredraft.v1 import drafter_pb2, drafter_pb2_grpc

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class DrafterClient:
    """Opens sessions on one drafter replica; all share a channel."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = drafter_pb2_grpc.DrafterServiceStub(self._channel)

    async def open(self, request: DraftOpen) -> DrafterStream:
        """Open a session; raise Unavailable, Overloaded or InvalidRequest."""
        call = self._stub.Draft()
        try:
            with _ended():
                await call.write(drafter_pb2.DraftRequest(open=codec.draft_open_to_pb(request)))
            first = await _read(call)
            if first is None or first.WhichOneof("message") != "opened":
                raise CorruptModelOutput("the drafter did not answer open with opened")
            opened = codec.draft_opened_from_pb(first.opened)
        except BaseException:
            call.cancel()
            raise
        return DrafterStream(call, opened, self._address)

    async def close(self) -> None:
        """Close the channel and every session on it."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class DrafterStream:
    """One session on a drafter.

    Proposals may be issued while others are outstanding; answers come in their order. Cancelling
    one that was sent leaves the stream usable: its answer is read and dropped. Once an error was
    raised the stream is over.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall, opened: DraftOpened, address: str) -> None:
        self._call, self._opened, self._address = call, opened, address
        self._sending = asyncio.Lock()
        self._pending: deque[tuple[Propose, asyncio.Future[DraftBlock]]] = deque()
        self._error: ForedraftError | None = None
        self._draining = False
        self._reader = asyncio.create_task(self._read_all())

    @property
    def opened(self) -> DraftOpened:
        """What the drafter said of itself on open."""
        return self._opened

    @property
    def address(self) -> str:
        """Where the replica is, as "host:port": others can reach it there, too."""
        return self._address

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""
        return self._draining

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the block for request.base."""
        chunks, last = features.split(request.features)
        propose = codec.propose_to_pb(replace(request, features=last))
        ahead = [drafter_pb2.DraftRequest(features={"data": chunk}) for chunk in chunks]
        answer: asyncio.Future[DraftBlock] = asyncio.get_running_loop().create_future()
        # Written here and not by a task of its own: whatever else the loop has to do comes after.
        async with self._sending:
            # Asked for here: the stream may have ended while another message was being sent.
            if self._error is not None:
                raise _again(self._error)
            self._pending.append((request, answer))
            with _ended():
                for message in (*ahead, drafter_pb2.DraftRequest(propose=propose)):
                    await self._call.write(message)
        return await answer

    async def close(self) -> None:
        """End the session on the drafter; never raises."""
        self._fail(Unavailable("the session is closed"))
        self._call.cancel()
        await asyncio.wait([self._reader])

    async def _read_all(self) -> None:
        """Hand answers to those who wait until the stream ends, then fail the rest."""
        try:
            while (message := await _read(self._call)) is not None:
                if message.WhichOneof("message") == "draining":
                    self._draining = True
                else:
                    self._answer(message)
            self._fail(Unavailable("the drafter ended the session"))
        except ForedraftError as error:
            self._fail(error)
        finally:
            self._call.cancel()

    def _answer(self, message: drafter_pb2.DraftResponse) -> None:
        if message.WhichOneof("message") != "block" or not self._pending:
            raise CorruptModelOutput("the drafter answered what was not asked")
        request, answer = self._pending[0]
        block = _checked(message.block, request, self._opened.model.vocab_size)
        self._pending.popleft()
        if not answer.done():
            answer.set_result(block)

    def _fail(self, error: ForedraftError) -> None:
        if self._error is None:
            self._error = error
        while self._pending:
            _, answer = self._pending.popleft()
            if not answer.done():
                answer.set_exception(_again(self._error))


def _checked(message: drafter_pb2.DraftBlock, request: Propose, vocab_size: int) -> DraftBlock:
    """Return the block; raise CorruptModelOutput unless it answers the request lawfully."""
    try:
        block = codec.draft_block_from_pb(message)
        limits.check_tokens("tokens", block.tokens, vocab_size)
        limits.check_range("bonus_guess", block.bonus_guess, -1, vocab_size - 1)
        limits.check_range("tokens length", len(block.tokens), 0, request.num_tokens)
        limits.check_range("generated_len", block.generated_len, 0, request.num_tokens)
    except InvalidRequest as error:
        raise CorruptModelOutput(f"the drafter's block is malformed: {error}") from error
    if block.base != request.base:
        raise CorruptModelOutput("the drafter answered for another base")
    return block


async def _read(call: grpc.aio.StreamStreamCall) -> drafter_pb2.DraftResponse | None:
    """Return the next message, None at the end; raise what the RPC's status stands for."""
    try:
        message = await call.read()
        return message if isinstance(message, drafter_pb2.DraftResponse) else None
    except grpc.aio.AioRpcError as error:
        details = error.details() or error.code().name
        raise from_status(error.code().name, details, _param(error.trailing_metadata())) from None
    except asyncio.InvalidStateError:
        raise Unavailable("the drafter is gone") from None
    except asyncio.CancelledError:
        # Our own task's cancellation goes on; the call's means that the stream was closed.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise Unavailable("the session is closed") from None


def _param(metadata: grpc.aio.Metadata | None) -> str | None:
    value = metadata.get("foredraft-param") if metadata else None
    return str(value) if value is not None else None


def _again(error: ForedraftError) -> ForedraftError:
    """Return a copy: one exception object must not be raised in several tasks."""
    return type(error)(str(error), param=error.param)


def _ended() -> AbstractContextManager[None]:
    """Leave it to whoever reads to say why a stream that cannot be written to has ended."""
    return suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError)
