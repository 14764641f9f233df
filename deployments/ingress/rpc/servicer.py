"""`foredraft.v1.GenerationService` over the same handlers as the HTTP routes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from deployments.ingress.doors.admission import Admission
from deployments.ingress.openai.answering import answers_of
from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.openai.fields import GenerationFields
from deployments.ingress.openai.routes import Handlers
from deployments.ingress.rpc.requests import chat_of, request_of, text_of
from deployments.ingress.rpc.responses import Responses
from deployments.ingress.stream.sse import CompletionBuffer, Delta
from foredraft.codec.common import model_to_pb
from foredraft.errors import Overloaded
from foredraft.limits import check_tokens
from foredraft.rpc.status import errors_as_status
from foredraft.v1 import generation_pb2 as pb
from foredraft.v1 import generation_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["GenerationService"].full_name


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Answers calls, at most max_calls at once.

    A call's deadline bounds its decoding, and its end, whoever ends it, frees what it held.
    """

    def __init__(self, by: Handlers, admission: Admission, max_calls: int) -> None:
        self._by = by
        self._admission = admission
        self._max_calls = max_calls
        self._calls = 0

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        """Return a whole answer."""
        async with self._admitted(context):
            prompt, stream = await self._decoded(request, context)
            whole = CompletionBuffer()
            async with aclosing(stream):
                async for _, delta in stream:
                    whole.add(delta)
            return Responses(len(prompt)).of(whole.delta)

    async def GenerateStream(
        self, request: pb.GenerateRequest, context: Any
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Yield an answer as it is committed."""
        async with self._admitted(context):
            prompt, stream = await self._decoded(request, context)
            responses = Responses(len(prompt))
            async with aclosing(stream):
                async for _, delta in stream:
                    if delta.text or delta.tokens or delta.finish_reason:
                        yield responses.of(delta)

    async def Tokenize(self, request: pb.TokenizeRequest, context: Any) -> pb.TokenizeResponse:
        """Return an input's tokens."""
        async with self._admitted(context):
            if request.input.WhichOneof("input") == "conversation":
                chat = chat_of(request.input.conversation)
                chat.check(self._by.generations.name)
                tokens = await self._by.chat.tokens(chat)
            else:
                tokens = await self._by.prompts.tokens(text_of(request.input), field="input")
            return pb.TokenizeResponse(token_ids=tokens)

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Any
    ) -> pb.DetokenizeResponse:
        """Return the text of tokens."""
        async with self._admitted(context):
            tokenizer, tokens = self._by.generations.tokenizer, list(request.token_ids)
            check_tokens("token_ids", tokens, tokenizer.get_vocab_size())
            return pb.DetokenizeResponse(text=tokenizer.decode(tokens, skip_special_tokens=False))

    async def GetModel(self, request: pb.GetModelRequest, context: Any) -> pb.GetModelResponse:
        """Return the target."""
        async with self._admitted(context):
            generations = self._by.generations
            model = model_to_pb(generations.target)
            return pb.GetModelResponse(name=generations.name, model=model)

    @asynccontextmanager
    async def _admitted(self, context: Any) -> AsyncIterator[None]:
        """Count a call while this is entered; what is raised inside is the call's status."""
        metadata = dict(context.invocation_metadata() or ())
        async with errors_as_status(context, "ingress"):
            if self._calls >= self._max_calls:
                raise Overloaded("the ingress has too many calls")
            with self._admission.entered(str(metadata.get("authorization", ""))):
                self._calls += 1
                try:
                    yield
                finally:
                    self._calls -= 1

    async def _decoded(
        self, message: pb.GenerateRequest, context: Any
    ) -> tuple[tuple[int, ...], AsyncGenerator[tuple[int, Delta]]]:
        """Return a request's prompt, and its answer as it comes."""
        generations = self._by.generations
        generations.stopping.check()
        request = request_of(message)
        request.check(generations.name)
        prompt = await self._prompt(request)
        config = request.speculative.applied_to(generations.config)
        [answer] = answers_of(request, [prompt], generations)
        generation = replace(answer.generation, timeout_s=context.time_remaining())
        return prompt, generations.deltas([answer._replace(generation=generation)], config)

    async def _prompt(self, request: GenerationFields) -> tuple[int, ...]:
        if isinstance(request, ChatRequest):
            return await self._by.chat.tokens(request)
        assert isinstance(request, CompletionRequest)
        [prompt] = request.prompts
        return await self._by.prompts.tokens(prompt, field="input")
