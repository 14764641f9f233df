"""The client's side of a stream of texts."""

from __future__ import annotations

import asyncio
from typing import Any

from drafter_service.client import info_of
from foredraft import limits
from foredraft.codec import texts as codec
from foredraft.errors import CorruptModelOutput, InvalidRequest
from foredraft.rpc.client import ClientStream, ServiceClient
from foredraft.rpc.transport import Role
from foredraft.texts import KnownText, ProposeTexts, Text, TextDraft, TextsOpen, TextsOpened
from foredraft.types import ModelInfo, Proposal
from foredraft.v1 import drafter_pb2, drafter_pb2_grpc


class TextsStream(ClientStream[drafter_pb2.DraftTextsRequest, drafter_pb2.DraftTextsResponse]):
    """A drafter for many texts. Once an error was raised, or a call cancelled, it is over."""

    def __init__(self, call: Any, request: TextsOpen) -> None:
        super().__init__("drafter", call)
        self._request = request
        self._opened: TextsOpened | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Send open and wait for its answer."""
        opening = codec.texts_open_to_pb(self._request)
        await self._write(drafter_pb2.DraftTextsRequest(open=opening))
        answer = await self._read_kind("opened")
        self._opened = codec.texts_opened_from_pb(answer.opened)

    @property
    def opened(self) -> TextsOpened:
        """The drafter's description of itself on open."""
        assert self._opened is not None
        return self._opened

    @property
    def max_len(self) -> int:
        """The longest text, in tokens."""
        return self._request.max_len

    async def propose(self, request: ProposeTexts) -> tuple[TextDraft, ...]:
        """Return a draft for each text, in their order; calls take turns."""
        message = drafter_pb2.DraftTextsRequest(propose=codec.propose_texts_to_pb(request))
        async with self._turn:
            await self._write(message)
            answer = await self._read_kind("drafts")
        try:
            drafts = codec.text_drafts_from_pb(answer.drafts)
            limits.check_range("drafts length", len(drafts), len(request.texts), len(request.texts))
            for text, draft in zip(request.texts, drafts, strict=True):
                self._check(text, draft, request.num_tokens)
        except InvalidRequest as error:
            raise CorruptModelOutput(f"the drafter's drafts are malformed: {error}") from error
        return drafts

    def _check(self, text: Text, draft: TextDraft, num_tokens: int) -> None:
        if (block := draft.block) is None:
            return
        known = text.known or KnownText(0, 0)
        length = known.length + len(text.append)
        limits.check_range("base.prefix_len", block.base.prefix_len, length, length)
        limits.check_range("tokens length", len(block.tokens), 0, num_tokens)
        limits.check_tokens("tokens", block.tokens, self.opened.model.vocab_size)


class TextsClient(ServiceClient[TextsStream]):
    """Opens streams of texts on one drafter replica."""

    peer = Role.DRAFTER

    async def info(self) -> ModelInfo:
        """Return the drafter's model, without a stream; raise as a stream does."""
        return await info_of(self.channel, self._open_timeout_s, self.metadata)

    async def open(self, proposal: Proposal, max_len: int) -> TextsStream:
        """Open a stream for texts of so many tokens; raise Unavailable or InvalidRequest."""
        call = drafter_pb2_grpc.DrafterServiceStub(self.channel).DraftTexts(metadata=self.metadata)
        return await self._start(TextsStream(call, TextsOpen(proposal, max_len)))
