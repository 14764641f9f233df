"""The drafter's gRPC server: one bidirectional stream is one session."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from drafter_service.batcher import Batcher
from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine
from drafter_service.texts.drafting import Texts
from foredraft.codec import common as common_codec
from foredraft.codec import drafter as codec
from foredraft.codec import texts as texts_codec
from foredraft.errors import ForedraftError, InvalidRequest
from foredraft.features.wire import size
from foredraft.messages import DraftBlock
from foredraft.rpc.server import ServiceServer
from foredraft.rpc.session import ServerStream, SessionServicer, session_tasks
from foredraft.rpc.transport import Role
from foredraft.tensors import parts
from foredraft.tensors.carrier import IN_CHUNKS, Carrier
from foredraft.v1 import drafter_pb2, drafter_pb2_grpc

SERVICE = drafter_pb2.DESCRIPTOR.services_by_name["DrafterService"].full_name

_Stream = ServerStream[drafter_pb2.DraftRequest, drafter_pb2.DraftResponse]
_Answer = DraftBlock | tuple[DraftBlock, ...]
_Answers = asyncio.Queue[asyncio.Future[Any] | None]


class DrafterServicer(SessionServicer, drafter_pb2_grpc.DrafterServiceServicer):
    """Serves sessions and streams of texts from a batcher; proposals are answered in order."""

    def __init__(self, batcher: Batcher, config: DrafterConfig, carrier: Carrier) -> None:
        super().__init__(Role.DRAFTER, batcher, config)
        self._batcher, self._max_pending = batcher, config.max_pending
        self._max_texts = config.max_texts
        self._carrier = carrier

    async def Draft(self, requests: Any, context: Any) -> None:
        """Serve one session."""
        await self.serve(context, self._session, drafter_pb2.DraftResponse)

    async def DraftTexts(self, requests: Any, context: Any) -> None:
        """Serve one stream of texts."""
        await self.serve(context, self._texts, drafter_pb2.DraftTextsResponse)

    async def DrafterInfo(
        self, request: drafter_pb2.DrafterInfoRequest, context: Any
    ) -> drafter_pb2.DrafterInfoResponse:
        """Describe the drafter."""
        async with self.answering(context):
            offers = await self._batcher.call(lambda proposals: proposals.engine.offers())
            return drafter_pb2.DrafterInfoResponse(
                model=common_codec.model_to_pb(self._batcher.info),
                oldest_protocol=common_codec.PROTOCOL,
                newest_protocol=common_codec.PROTOCOL,
                offers=[
                    drafter_pb2.ProposalOffer(proposal=proposal, max_draft_tokens=most)
                    for proposal, most in offers.items()
                ],
                tensor_store=self._carrier.store,
                max_texts=0 if self._batcher.info.features_hash else self._max_texts,
            )

    async def _texts(self, opening: drafter_pb2.TextsOpen, stream: ServerStream[Any, Any]) -> None:
        """Open a stream of texts and answer its proposals, one after the other."""
        request = texts_codec.texts_open_from_pb(opening)
        texts = Texts(self._batcher, request, self._max_texts)
        opened = texts_codec.texts_opened_to_pb(await texts.opened())
        with self.admitted(stream, texts.close):
            await stream.write(drafter_pb2.DraftTextsResponse(opened=opened))
            while (message := await stream.read()) is not None:
                if message.WhichOneof("message") != "propose":
                    raise InvalidRequest("only proposals may follow open", param="message")
                asked = texts_codec.propose_texts_from_pb(
                    message.propose, request.max_len, self._max_texts
                )
                drafts = texts_codec.text_drafts_to_pb(await texts.drafts(asked))
                await stream.write(drafter_pb2.DraftTextsResponse(drafts=drafts))

    async def _session(self, opening: drafter_pb2.DraftOpen, stream: _Stream) -> None:
        """Open a session and answer its proposals."""
        request = codec.draft_open_from_pb(opening)
        handle, opened = await self._batcher.open(request)
        opened = opened._replace(tensor_store=self._carrier.store)
        most = size(request.max_len, opened.model.features_width)
        features = parts.Gathered("features", most)
        answers: _Answers = asyncio.Queue()
        room = asyncio.Semaphore(self._max_pending)
        with self.admitted(stream, partial(self._batcher.close, handle)):
            reply = codec.draft_opened_to_pb(opened)
            await stream.write(drafter_pb2.DraftResponse(opened=reply))
            async with session_tasks() as tasks:
                tasks.create_task(self._read(stream, handle, answers, room, features))
                while (answer := await answers.get()) is not None:
                    response = _response(await answer)
                    room.release()
                    await stream.write(response)

    async def _read(
        self,
        stream: _Stream,
        handle: int,
        answers: _Answers,
        room: asyncio.Semaphore,
        features: parts.Gathered,
    ) -> None:
        """Queue proposals as they come, then None or, behind them, what is wrong with a message."""
        try:
            while (message := await stream.read()) is not None:
                kind = message.WhichOneof("message")
                if kind == "features":
                    features.add(common_codec.part_from_pb(message.features))
                    continue
                if kind == "propose":
                    request = codec.propose_from_pb(message.propose)
                    data = await parts.read(self._carrier, features.end(request.features))
                    request = replace(request, features=data)
                    await room.acquire()
                    answers.put_nowait(self._batcher.propose(handle, request))
                elif kind == "propose_ahead":
                    ahead = codec.propose_ahead_from_pb(message.propose_ahead)
                    await room.acquire()
                    answers.put_nowait(self._batcher.propose_ahead(handle, ahead))
                else:
                    raise InvalidRequest("only proposals may follow open", param="message")
            answers.put_nowait(None)
        except ForedraftError as error:
            refusal: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refusal.set_exception(error)
            refusal.exception()  # an earlier proposal's error may come first
            answers.put_nowait(refusal)


def _response(answer: _Answer) -> drafter_pb2.DraftResponse:
    if isinstance(answer, DraftBlock):
        return drafter_pb2.DraftResponse(block=codec.draft_block_to_pb(answer))
    return drafter_pb2.DraftResponse(blocks_ahead=codec.draft_blocks_to_pb(answer))


async def serve(
    config: DrafterConfig, carrier: Carrier = IN_CHUNKS, token: str = ""
) -> ServiceServer:
    """Load the model and serve it; return when it is ready. Raise WeightsError or ConfigError.

    carrier reads the references to features that peers send; token is what they must show, by
    default the configuration's.
    """
    batcher = Batcher(lambda: load_engine(config), config.max_queue)
    return await serve_engine(batcher, config, carrier, token)


async def serve_engine(
    batcher: Batcher, config: DrafterConfig, carrier: Carrier = IN_CHUNKS, token: str = ""
) -> ServiceServer:
    """Serve a batcher's engine, which need not be loaded yet."""
    servicer = DrafterServicer(batcher, config, carrier)
    register = drafter_pb2_grpc.add_DrafterServiceServicer_to_server
    server = ServiceServer(servicer, register, SERVICE, token)
    await server.start()
    return server
