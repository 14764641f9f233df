"""The verifier as its callers see it: `open` a session, then `verify` rounds. Never imports torch.

What the peer answers is checked before it is believed, and every failure is an error of
foredraft.errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import grpc

from foredraft import limits
from foredraft.codec import lease as lease_codec
from foredraft.codec import records as codec
from foredraft.decoding.tree import explicit, is_branch
from foredraft.errors import (
    CorruptModelOutput,
    ForedraftError,
    InvalidRequest,
    Unavailable,
    from_status,
)
from foredraft.features.wire import Chunks
from foredraft.lease import DraftSource, Grant, LeaseEnded, LedRound
from foredraft.types import ModelInfo, Round, Verdict, VerifyOpen
from foredraft.v1 import verifier_pb2, verifier_pb2_grpc

_OPTIONS = [
    ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


class VerifierClient:
    """One verifier replica; its sessions share a channel. Make it inside a running event loop."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._stub = verifier_pb2_grpc.VerifierServiceStub(self._channel)

    async def open(self, request: VerifyOpen) -> VerifierStream:
        """Open a session and wait until it is admitted."""
        stream = VerifierStream(self._stub.Verify(), request)
        try:
            await stream.start()
        except BaseException:
            await stream.close()
            raise
        return stream

    async def close(self) -> None:
        """Close the channel and with it every session on it."""
        await self._channel.close()


class VerifierStream:
    """One session on one verifier; one round at a time."""

    def __init__(self, call: Any, opened: VerifyOpen) -> None:
        self._call = call
        self._open = opened
        self._model: ModelInfo | None = None
        self._draining = False
        self._features = Chunks()

    async def start(self) -> None:
        """Send open and wait for its answer."""
        message = verifier_pb2.VerifyRequest(open=codec.verify_open_to_pb(self._open))
        answer = await self._ask(message, "opened")
        self._model = codec.model_from_pb(answer.opened.model)

    @property
    def model(self) -> ModelInfo:
        """The target model, as the verifier described it on open."""
        assert self._model is not None
        return self._model

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""
        return self._draining

    async def verify(self, request: Round) -> Verdict:
        """Return the verdict on request; cancelling it ends the stream."""
        message = verifier_pb2.VerifyRequest(round=codec.round_to_pb(request))
        answer = await self._ask(message, "verdict")
        return self._answered(request, answer)

    async def use_drafter(self, source: DraftSource) -> None:
        """Name the drafter that led rounds are to ask."""
        message = lease_codec.source_to_pb(source)
        await self._write(verifier_pb2.VerifyRequest(draft_source=message))

    async def grant(self, grant: Grant) -> None:
        """Start a lease, or replace the rest of the active one."""
        message = lease_codec.grant_to_pb(grant)
        await self._write(verifier_pb2.VerifyRequest(grant=message))

    async def next_led(self) -> LedRound | LeaseEnded:
        """Return the next led round, or the lease's end; cancelling it ends the stream."""
        answer = await self._read()
        kind = answer.WhichOneof("message")
        try:
            if kind == "lease_ended":
                return lease_codec.lease_ended_from_pb(answer.lease_ended)
            if kind != "led_round":
                raise CorruptModelOutput(f"the verifier answered {kind} while it held a lease")
            led = lease_codec.led_round_from_pb(answer.led_round)
            limits.check_tokens("tokens", led.block.tokens, self.model.vocab_size)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the verifier's led round: {error}") from None
        block = led.block
        request = Round(block.base, block.tokens, 1, block.parents, block.q)
        return replace(led, verdict=self._checked(request, led.verdict))

    async def close(self) -> None:
        """End the session on the verifier; never raises."""
        self._call.cancel()

    def _answered(self, request: Round, answer: verifier_pb2.VerifyResponse) -> Verdict:
        try:
            verdict = codec.verdict_from_pb(answer.verdict)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the verifier's verdict: {error}") from None
        return self._checked(request, verdict)

    def _checked(self, request: Round, verdict: Verdict) -> Verdict:
        """Return the verdict if the contract allows it as an answer to request."""
        try:
            verdict = replace(verdict, features=self._features.end(verdict.features))
            limits.check_tokens("next_tokens", verdict.next_tokens, self.model.vocab_size)
            for told in (*verdict.logprobs, *verdict.prompt_logprobs):
                tokens = [token for token, _ in told.top]
                limits.check_tokens("logprobs", tokens, self.model.vocab_size)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the verifier's verdict: {error}") from None
        most = 1 if request.draft else request.plain_steps
        if verdict.base != request.base or len(verdict.next_tokens) > most:
            raise CorruptModelOutput("the verifier's verdict does not answer the round")
        if not is_branch(verdict.kept, explicit(request.parents, len(request.draft))):
            raise CorruptModelOutput("the verifier's verdict keeps no branch of the draft")
        return verdict

    async def _ask(
        self, message: verifier_pb2.VerifyRequest, kind: str
    ) -> verifier_pb2.VerifyResponse:
        """Send a message and return its answer, which must be of a kind."""
        await self._write(message)
        response = await self._read()
        if (got := response.WhichOneof("message")) != kind:
            raise CorruptModelOutput(f"the verifier answered {got} where {kind} was due")
        return response

    async def _write(self, message: verifier_pb2.VerifyRequest) -> None:
        await self._done(self._call.write(message))

    async def _read(self) -> verifier_pb2.VerifyResponse:
        """Return the next answer, noting drain requests and gathering features."""
        while True:
            answer = await self._done(self._call.read())
            if answer is grpc.aio.EOF:
                raise await self._ended()
            kind = answer.WhichOneof("message")
            if kind == "draining":
                self._draining = True
            elif kind == "features":
                self._gather(answer.features.data)
            else:
                response: verifier_pb2.VerifyResponse = answer
                return response

    async def _done(self, operation: Awaitable[Any]) -> Any:
        """Return what a read or a write gives; raise what the stream's status stands for."""
        try:
            return await operation
        except grpc.aio.AioRpcError as error:
            raise _mapped(error.code(), error.details(), error.trailing_metadata()) from None
        except asyncio.InvalidStateError:
            # The call had ended before this message: its status says why.
            raise await self._ended() from None

    def _gather(self, chunk: bytes) -> None:
        try:
            self._features.add(chunk)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the verifier's verdict: {error}") from None

    async def _ended(self) -> ForedraftError:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return Unavailable("the verifier ended the session")
        return _mapped(code, await self._call.details(), await self._call.trailing_metadata())


def _mapped(code: grpc.StatusCode, details: str | None, trailing: Any) -> ForedraftError:
    """Return the error that a status stands for; a cancelled call means that the peer is gone."""
    if code is grpc.StatusCode.CANCELLED:
        return Unavailable("the stream to the verifier was cancelled")
    param = dict(trailing or ()).get("foredraft-param")
    return from_status(code.name, details or code.name, param)
