"""What all gRPC services of the ingress share: admission of calls, and answers to requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from deployments.ingress.doors.admission import Admission
from deployments.ingress.openai.answering import Prompt, answers_of
from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.openai.fields import GenerationFields
from deployments.ingress.openai.routes import Handlers
from deployments.ingress.stream.sse import Delta
from deployments.observability.tracing import remember_parent
from foredraft.errors import Overloaded
from foredraft.rpc.status import errors_as_status


class Calls:
    """Calls of a model's handlers, at most `most` at once.

    A call's deadline bounds its decoding, and its end, whoever ends it, frees what it held.
    """

    def __init__(self, by: Handlers, admission: Admission, most: int) -> None:
        self.by = by
        self._admission = admission
        self._most = most
        self.running = 0
        """Calls that are under way."""

    @asynccontextmanager
    async def admitted(self, context: Any) -> AsyncIterator[None]:
        """Count a call while this is entered; what is raised inside is the call's status."""
        metadata = _metadata(context)
        async with errors_as_status(context, "ingress"):
            if self.running >= self._most:
                raise Overloaded("the ingress has too many calls")
            with self._admission.entered(key_of(context)):
                remember_parent(metadata)
                self.running += 1
                try:
                    yield
                finally:
                    self.running -= 1

    async def decoded(
        self, request: GenerationFields, context: Any
    ) -> tuple[tuple[int, ...], AsyncGenerator[tuple[int, Delta]]]:
        """Return a request's prompt, and its answers as they come, each with its number."""
        generations = self.by.generations
        generations.stopping.check()
        request.check(generations.name)
        prompt = await self._prompt(request)
        config = request.speculative.applied_to(generations.config)
        within = context.time_remaining()
        answers = [
            answer._replace(generation=replace(answer.generation, timeout_s=within))
            for answer in answers_of(request, [Prompt(prompt)], generations)
        ]
        return prompt, generations.deltas(answers, config)

    async def _prompt(self, request: GenerationFields) -> tuple[int, ...]:
        if isinstance(request, ChatRequest):
            return await self.by.chat.tokens(request)
        assert isinstance(request, CompletionRequest)
        [prompt] = request.prompts
        return await self.by.prompts.tokens(prompt, field="input")


def key_of(context: Any) -> str:
    """Return the authorization that a call shows, "" for none."""
    return _metadata(context).get("authorization", "")


def _metadata(context: Any) -> dict[str, str]:
    return {key: str(value) for key, value in context.invocation_metadata() or ()}
