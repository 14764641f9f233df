"""The denoiser as its callers see it: `open` a session, then `advance`. Never imports torch.

What the peer answers is checked before it is believed, and every failure is an error of
foredraft.errors.
"""

from __future__ import annotations

from typing import Any

from foredraft import limits
from foredraft.codec import common as common_codec
from foredraft.codec import denoiser as codec
from foredraft.decoding.block_state import MASKED, is_full
from foredraft.denoising import Advance, Advanced, DenoiseOpen
from foredraft.errors import CorruptModelOutput, InvalidRequest
from foredraft.rpc.client import ClientStream, ServiceClient
from foredraft.rpc.transport import Role
from foredraft.types import ModelInfo
from foredraft.v1 import denoiser_pb2, denoiser_pb2_grpc


class DenoiserStream(ClientStream[denoiser_pb2.DenoiseRequest, denoiser_pb2.DenoiseResponse]):
    """One session on one denoiser; one advance at a time."""

    def __init__(self, call: Any, request: DenoiseOpen) -> None:
        super().__init__("denoiser", call)
        self._request = request
        self._model: ModelInfo | None = None

    async def start(self) -> None:
        """Send open and wait for its answer."""
        await self._write(denoiser_pb2.DenoiseRequest(open=codec.denoise_open_to_pb(self._request)))
        answer = await self._read_kind("opened")
        try:
            model = common_codec.model_from_pb(answer.opened.model)
            limits.check_range("block_length", model.block_length, 1, limits.MAX_BLOCK_LENGTH)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the denoiser's model: {error}") from None
        self._model = model

    @property
    def model(self) -> ModelInfo:
        """The target model, as the denoiser described it on open."""
        assert self._model is not None
        return self._model

    async def advance(self, request: Advance) -> Advanced:
        """Return the answer to an advance; cancelling it ends the stream."""
        await self._write(denoiser_pb2.DenoiseRequest(advance=codec.advance_to_pb(request)))
        answer = await self._read_kind("advanced")
        try:
            return self._checked(request, codec.advanced_from_pb(answer.advanced))
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the denoiser's answer: {error}") from None

    def _checked(self, request: Advance, advanced: Advanced) -> Advanced:
        """Return the answer if the contract allows it for the request, whatever the state was."""
        block, committed, length = advanced.block, advanced.committed, self.model.block_length
        filled = [token for token in block if token != MASKED]
        limits.check_tokens("committed", committed, self.model.vocab_size)
        limits.check_tokens("block", filled, self.model.vocab_size)
        whole = len(committed) % length == 0 and len(block) in (0, length)
        ends = not block and bool(committed)
        if not whole or not (ends or (block and not is_full(block))):
            raise CorruptModelOutput("the denoiser's answer is not of whole blocks")
        if self.model.mask_token_id in (*committed, *filled):
            raise CorruptModelOutput("the denoiser filled a slot with the mask")
        if advanced.base != request.base or advanced.calls > request.calls:
            raise CorruptModelOutput("the denoiser's answer is not to the advance")
        return advanced


class DenoiserClient(ServiceClient[DenoiserStream]):
    """Opens sessions on one denoiser replica."""

    peer = Role.DENOISER

    async def open(self, request: DenoiseOpen) -> DenoiserStream:
        """Open a session and wait until it is admitted."""
        call = denoiser_pb2_grpc.DenoiserServiceStub(self.channel).Denoise(metadata=self.metadata)
        return await self._start(DenoiserStream(call, request))
