"""`foredraft.v1.GenerationService` over the same handlers as the HTTP routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from deployments.ingress.openai.chat.choice import FreeText
from deployments.ingress.openai.chat.handler import text_of
from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.fields import GenerationFields
from deployments.ingress.rpc.calls import Calls
from deployments.ingress.rpc.requests import chat_of, prompt_of, request_of
from deployments.ingress.rpc.responses import Responses
from deployments.ingress.stream.sse import CompletionBuffer
from foredraft.codec.common import model_to_pb
from foredraft.limits import check_tokens
from foredraft.v1 import generation_pb2 as pb
from foredraft.v1 import generation_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["GenerationService"].full_name


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Answers calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self._by = calls, calls.by

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        """Return a whole answer."""
        async with self._calls.admitted(context):
            asked = request_of(request)
            prompt, stream = await self._calls.decoded(asked, context)
            whole = CompletionBuffer()
            async with aclosing(stream):
                async for _, delta in stream:
                    whole.add(delta)
            return _responses(prompt, asked).whole(whole.delta)

    async def GenerateStream(
        self, request: pb.GenerateRequest, context: Any
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Yield an answer as it is committed."""
        async with self._calls.admitted(context):
            asked = request_of(request)
            prompt, stream = await self._calls.decoded(asked, context)
            responses = _responses(prompt, asked)
            async with aclosing(stream):
                async for _, delta in stream:
                    if delta.text or delta.tokens or delta.finish_reason:
                        yield responses.of(delta)

    async def Tokenize(self, request: pb.TokenizeRequest, context: Any) -> pb.TokenizeResponse:
        """Return an input's tokens."""
        async with self._calls.admitted(context):
            if request.input.WhichOneof("input") == "conversation":
                chat = chat_of(request.input.conversation)
                chat.check(self._by.generations.name)
                tokens = await self._by.chat.tokens(chat)
            else:
                tokens = await self._by.prompts.tokens(prompt_of(request.input), field="input")
            return pb.TokenizeResponse(token_ids=tokens)

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Any
    ) -> pb.DetokenizeResponse:
        """Return the text of tokens."""
        async with self._calls.admitted(context):
            tokenizer, tokens = self._by.generations.tokenizer, list(request.token_ids)
            check_tokens("token_ids", tokens, tokenizer.get_vocab_size())
            return pb.DetokenizeResponse(text=tokenizer.decode(tokens, skip_special_tokens=False))

    async def GetModel(self, request: pb.GetModelRequest, context: Any) -> pb.GetModelResponse:
        """Return the target."""
        async with self._calls.admitted(context):
            generations = self._by.generations
            model = model_to_pb(generations.target)
            return pb.GetModelResponse(name=generations.name, model=model)


def _responses(prompt: tuple[int, ...], request: GenerationFields) -> Responses:
    text = text_of(request) if isinstance(request, ChatRequest) else FreeText()
    return Responses(len(prompt), text)
