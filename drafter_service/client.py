"""The drafter's client: orchestrator's DrafterPort over one gRPC channel."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc

from foredraft import limits
from foredraft.codec import common as common_codec
from foredraft.codec import drafter as codec
from foredraft.decoding.outcomes import outcomes_of
from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest, Unavailable
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from foredraft.rpc.client import ClientStream, ServiceClient
from foredraft.rpc.config import NO_DELAY, LinkConfig
from foredraft.rpc.status import error_of
from foredraft.rpc.transport import PLAIN_TEXT, Role, Transport
from foredraft.tensors.carrier import IN_CHUNKS, Carrier
from foredraft.tensors.parts import Sender, chunked
from foredraft.types import Base, ModelInfo
from foredraft.v1 import drafter_pb2, drafter_pb2_grpc

_Request = Propose | ProposeAhead


class DrafterStream(ClientStream[drafter_pb2.DraftRequest, drafter_pb2.DraftResponse]):
    """One session on a drafter.

    Proposals may be issued while others are outstanding; answers come in their order. Cancelling
    one that was sent leaves the stream usable: its answer is read and dropped. Once an error was
    raised the stream is over.
    """

    def __init__(self, call: Any, request: DraftOpen, address: str, carrier: Carrier) -> None:
        super().__init__("drafter", call)
        self._request, self._address, self._carrier = request, address, carrier
        self._sending = asyncio.Lock()
        self._pending: deque[tuple[_Request, asyncio.Future[Any]]] = deque()
        self._error: ForedraftError | None = None
        self._opened: DraftOpened | None = None
        self._sender = Sender(carrier, "")
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Send open and wait for its answer."""
        await self._write(drafter_pb2.DraftRequest(open=codec.draft_open_to_pb(self._request)))
        answer = await self._read_kind("opened")
        self._opened = codec.draft_opened_from_pb(answer.opened)
        self._sender = Sender(self._carrier, self._opened.tensor_store)
        self._reader = asyncio.create_task(self._read_all())

    @property
    def opened(self) -> DraftOpened:
        """The drafter's description of itself on open."""
        assert self._opened is not None
        return self._opened

    @property
    def address(self) -> str:
        """Where the replica is, as "host:port": others can reach it there, too."""
        return self._address

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the block for request.base."""
        block: DraftBlock = await self._answered(request, lambda: self._send(request))
        return block

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        """Return the blocks for outcomes that the drafter had room for."""
        propose = codec.propose_ahead_to_pb(request)
        message = drafter_pb2.DraftRequest(propose_ahead=propose)
        blocks: tuple[DraftBlock, ...] = await self._answered(request, lambda: self._write(message))
        return blocks

    async def _answered(self, request: _Request, send: Callable[[], Awaitable[None]]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Cancelled while it is sent, it is left to nobody.
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        # Written here and not by a task of its own: whatever else the loop has to do comes after.
        async with self._sending:
            # Asked for here: the stream may have ended while another message was being sent.
            if self._error is not None:
                raise _again(self._error)
            self._pending.append((request, answer))
            # The reader has the reason why a stream that cannot be written to has ended.
            with suppress(ForedraftError):
                await send()
        return await answer

    async def _send(self, request: Propose) -> None:
        """Send a proposal, and before it what of its features does not go with it."""
        try:
            parts, last = await self._sender.parts(request.features)
        except asyncio.CancelledError:
            # As in a write: a proposal that was begun is sent, or the last one.
            self._call.cancel()
            raise
        for part in (*chunked(request.feature_parts), *parts):
            chunk = common_codec.part_to_pb(part)
            await self._write(drafter_pb2.DraftRequest(features=chunk))
        propose = codec.propose_to_pb(replace(request, features=last))
        await self._write(drafter_pb2.DraftRequest(propose=propose))

    async def close(self) -> None:
        """End the session on the drafter; never raises."""
        self._fail(Unavailable("the session is closed"))
        self._sender.close()
        await super().close()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    async def _read_all(self) -> None:
        """Hand answers to those who wait until the stream ends, then fail the rest."""
        try:
            while True:
                self._answer(await self._read())
        except ForedraftError as error:
            self._fail(error)
        finally:
            self._call.cancel()

    def _answer(self, message: drafter_pb2.DraftResponse) -> None:
        if not self._pending:
            raise CorruptModelOutput("the drafter answered what was not asked")
        request, answer = self._pending[0]
        found = self._checked(message, request)
        self._pending.popleft()
        if not answer.done():
            answer.set_result(found)

    def _checked(
        self, message: drafter_pb2.DraftResponse, request: _Request
    ) -> DraftBlock | tuple[DraftBlock, ...]:
        """Return the answer; raise CorruptModelOutput unless it answers the request lawfully."""
        kind = message.WhichOneof("message")
        if kind != ("block" if isinstance(request, Propose) else "blocks_ahead"):
            raise CorruptModelOutput(f"the drafter answered {kind} where a draft was due")
        opened, most = self.opened, self._request.num_guesses
        try:
            if isinstance(request, Propose):
                block = codec.draft_block_from_pb(message.block)
                return checked_block(block, {request.base}, request.num_tokens, most, opened)
            bases = {each.base for each in outcomes_of(request)}
            blocks = codec.draft_blocks_from_pb(message.blocks_ahead)
            return tuple(
                checked_block(block, bases, request.num_tokens, most, opened) for block in blocks
            )
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the drafter's block is malformed: {error}") from error

    def _fail(self, error: ForedraftError) -> None:
        if self._error is None:
            self._error = error
        while self._pending:
            _, answer = self._pending.popleft()
            if not answer.done():
                answer.set_exception(_again(self._error))


class DrafterClient(ServiceClient[DrafterStream]):
    """Opens sessions on one drafter replica; carrier takes features that are large."""

    peer = Role.DRAFTER

    def __init__(
        self,
        address: str,
        open_timeout_s: float = 60.0,
        link: LinkConfig = NO_DELAY,
        carrier: Carrier = IN_CHUNKS,
        transport: Transport = PLAIN_TEXT,
        token: str = "",
    ) -> None:
        super().__init__(address, open_timeout_s, link, transport, token)
        self._carrier = carrier

    async def info(self) -> ModelInfo:
        """Return the drafter's model, without a session; raise as a stream does."""
        return await info_of(self.channel, self._open_timeout_s, self.metadata)

    async def open(self, request: DraftOpen) -> DrafterStream:
        """Open a session; raise Unavailable, Overloaded or InvalidRequest."""
        call = drafter_pb2_grpc.DrafterServiceStub(self.channel).Draft(metadata=self.metadata)
        return await self._start(DrafterStream(call, request, self.address, self._carrier))


async def info_of(
    channel: grpc.aio.Channel, timeout_s: float, metadata: Sequence[tuple[str, str]] = ()
) -> ModelInfo:
    """Return the model of a channel's drafter; raise as a stream does."""
    stub = drafter_pb2_grpc.DrafterServiceStub(channel)
    try:
        asked = drafter_pb2.DrafterInfoRequest()
        found = await stub.DrafterInfo(asked, timeout=timeout_s, metadata=tuple(metadata))
    except grpc.aio.AioRpcError as error:
        raise error_of(error.code(), error.details(), error.trailing_metadata()) from None
    return common_codec.model_from_pb(found.model)


def checked_block(
    block: DraftBlock, bases: Set[Base], num_tokens: int, num_guesses: int, opened: DraftOpened
) -> DraftBlock:
    """Return a block that answers for one of some bases.

    Raise InvalidRequest for a value out of range, CorruptModelOutput for another base.
    """
    vocab_size = opened.model.vocab_size
    limits.check_tokens("tokens", block.tokens, vocab_size)
    limits.check_tokens("guesses", [guess.token for guess in block.guesses], vocab_size)
    limits.check_range("guesses length", len(block.guesses), 0, num_guesses)
    limits.check_range("tokens length", len(block.tokens), 0, num_tokens)
    limits.check_range("generated_len", block.generated_len, 0, num_tokens)
    if block.base not in bases:
        raise CorruptModelOutput("the drafter answered for another base")
    return block


def _again(error: ForedraftError) -> ForedraftError:
    """Return a copy: one exception object must not be raised in several tasks."""
    return type(error)(str(error), param=error.param)
