"""What answers completion requests."""

from __future__ import annotations

from fastapi.responses import Response

from deployments.ingress.generations import Decoding
from deployments.ingress.openai.answer import BodyKind
from deployments.ingress.openai.answering import answer
from deployments.ingress.openai.completions.choice import CompletionChoice
from deployments.ingress.openai.completions.request import CompletionRequest
from deployments.ingress.openai.prompts import Prompts

_KIND = BodyKind("cmpl", "text_completion", "text_completion")


class Completions:
    """Continues prompts."""

    def __init__(self, generations: Decoding, prompts: Prompts) -> None:
        self._generations, self._prompts = generations, prompts

    async def answer(self, request: CompletionRequest, last_event: str | None = None) -> Response:
        """Complete prompts, n times each; with stream=true in events as tokens are committed."""
        self._generations.stopping.check()
        request.check(self._generations.name)
        prompts = [await self._prompts.tokens(prompt) for prompt in request.prompts]
        suffix: tuple[int, ...] = ()
        if request.suffix:
            suffix = await self._prompts.tokens(request.suffix, special=False, field="suffix")

        def writer(prompt: tuple[int, ...]) -> CompletionChoice:
            echoed = prompt if request.echo else ()
            with_logprobs = request.logprobs is not None
            return CompletionChoice(self._generations.tokenizer, echoed, with_logprobs)

        parts = self._generations, _KIND, writer, last_event, suffix
        return await answer(request, prompts, *parts)
