"""The verifier as its callers see it: `open` a session, then `verify` rounds. Never imports torch.

What the peer answers is checked before it is believed, and every failure is an error of
foredraft.errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foredraft import limits
from foredraft.codec import common as common_codec
from foredraft.codec import lease as lease_codec
from foredraft.codec import verifier as codec
from foredraft.decoding.tree import explicit, is_branch
from foredraft.errors import CorruptModelOutput, InvalidRequest
from foredraft.lease import DraftSource, Grant, LeaseEnded, LedRound
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.rpc.client import ClientStream, ServiceClient
from foredraft.rpc.transport import Role
from foredraft.tensors.parts import Gathered, in_one
from foredraft.types import ModelInfo
from foredraft.v1 import verifier_pb2, verifier_pb2_grpc


class VerifierStream(ClientStream[verifier_pb2.VerifyRequest, verifier_pb2.VerifyResponse]):
    """One session on one verifier; one round at a time."""

    def __init__(self, call: Any, request: VerifyOpen) -> None:
        super().__init__("verifier", call)
        self._request = request
        self._model: ModelInfo | None = None
        self._features = Gathered("features", limits.MAX_FEATURES)

    async def start(self) -> None:
        """Send open and wait for its answer."""
        await self._write(verifier_pb2.VerifyRequest(open=codec.verify_open_to_pb(self._request)))
        answer = await self._read_kind("opened")
        self._model = common_codec.model_from_pb(answer.opened.model)

    @property
    def model(self) -> ModelInfo:
        """The target model, as the verifier described it on open."""
        assert self._model is not None
        return self._model

    async def verify(self, request: Round) -> Verdict:
        """Return the verdict on request; cancelling it ends the stream."""
        await self._write(verifier_pb2.VerifyRequest(round=codec.round_to_pb(request)))
        answer = await self._read_kind("verdict")
        try:
            verdict = codec.verdict_from_pb(answer.verdict)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the verifier's verdict: {error}") from None
        return self._checked(request, verdict)

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
        steps = 1 if block.tokens else limits.MAX_PLAIN_STEPS
        request = Round(block.base, block.tokens, steps, block.parents, block.q)
        return replace(led, verdict=self._checked(request, led.verdict))

    def _checked(self, request: Round, verdict: Verdict) -> Verdict:
        """Return the verdict if the contract allows it as an answer to request."""
        try:
            parts, features = in_one(self._features.end(verdict.features))
            verdict = replace(verdict, features=features, feature_parts=parts)
            limits.check_tokens("next_tokens", verdict.next_tokens, self.model.vocab_size)
            for logprobs in (*verdict.logprobs, *verdict.prompt_logprobs):
                tokens = [token for token, _ in logprobs.top]
                limits.check_tokens("logprobs", tokens, self.model.vocab_size)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the verifier's verdict: {error}") from None
        most = 1 if request.draft else request.plain_steps
        if verdict.base != request.base or len(verdict.next_tokens) > most:
            raise CorruptModelOutput("the verifier's verdict does not answer the round")
        if not is_branch(verdict.kept, explicit(request.parents, len(request.draft))):
            raise CorruptModelOutput("the verifier's verdict keeps no branch of the draft")
        return verdict

    async def _read(self) -> verifier_pb2.VerifyResponse:
        """Return the next answer but features, which are gathered for it."""
        while (answer := await super()._read()).WhichOneof("message") == "features":
            try:
                self._features.add(common_codec.part_from_pb(answer.features))
            except InvalidRequest as error:
                raise CorruptModelOutput(f"the verifier's verdict: {error}") from None
        return answer


class VerifierClient(ServiceClient[VerifierStream]):
    """Opens sessions on one verifier replica."""

    peer = Role.VERIFIER

    async def open(self, request: VerifyOpen) -> VerifierStream:
        """Open a session and wait until it is admitted."""
        call = verifier_pb2_grpc.VerifierServiceStub(self.channel).Verify(metadata=self.metadata)
        return await self._start(VerifierStream(call, request))
