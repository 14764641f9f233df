"""What answers completion requests."""

from __future__ import annotations

from fastapi.responses import Response

from deployments.ingress.generations import Decoding
from deployments.ingress.openai.answer import BodyKind, ChoiceWriter
from deployments.ingress.openai.answering import Prompt, answer
from deployments.ingress.openai.completions.choice import CompletionChoice
from deployments.ingress.openai.completions.infill import InfillChoice
from deployments.ingress.openai.completions.request import CompletionRequest, Hole
from deployments.ingress.openai.prompts import Prompts
from foredraft.errors import InvalidRequest
from foredraft.layout import with_hole, with_holes

_KIND = BodyKind("cmpl", "text_completion", "text_completion")


class Completions:
    """Continues prompts, and fills texts' holes."""

    def __init__(self, generations: Decoding, prompts: Prompts) -> None:
        self._generations, self._prompts = generations, prompts

    async def answer(self, request: CompletionRequest, last_event: str | None = None) -> Response:
        """Complete prompts, n times each; with stream=true in events as tokens are committed."""
        self._generations.stopping.check()
        request.check(self._generations.name)
        if request.unmasking is not None and not self._generations.target.block_length:
            raise InvalidRequest("unmasking is of diffusion targets", param="unmasking")
        if request.infill is not None:
            prompts = [await self._text(request.infill)]
        else:
            prompts = [await self._prompt(request, prompt) for prompt in request.prompts]

        def writer(prompt: Prompt) -> ChoiceWriter:
            tokenizer, with_logprobs = self._generations.tokenizer, request.logprobs is not None
            if request.infill is not None:
                return InfillChoice(tokenizer, request.infill, with_logprobs)
            echoed = prompt.tokens if request.echo else ()
            return CompletionChoice(tokenizer, echoed, with_logprobs)

        return await answer(request, prompts, self._generations, _KIND, writer, last_event)

    async def _prompt(self, request: CompletionRequest, prompt: str | list[int]) -> Prompt:
        """Return a prompt with what the request wants after the answer."""
        tokens = await self._prompts.tokens(prompt)
        if not request.suffix:
            return Prompt(tokens)
        self._require_any_subset("suffix")
        suffix = await self._prompts.tokens(request.suffix, special=False, field="suffix")
        hole = request.length(len(tokens), self._generations.target.max_len)
        return Prompt(tokens + suffix, with_hole(len(tokens), hole, len(suffix)))

    async def _text(self, infill: list[str | list[int] | Hole]) -> Prompt:
        """Return what is given of a text, with where it is."""
        self._require_any_subset("infill")
        tokens: tuple[int, ...] = ()
        parts: list[tuple[int, bool]] = []
        for number, part in enumerate(infill):
            if isinstance(part, Hole):
                parts.append((part.mask, False))
                continue
            special = number == 0
            found = await self._prompts.tokens(part, special=special, field="infill")
            tokens += found
            parts.append((len(found), True))
        length, most = sum(count for count, _ in parts), self._generations.target.max_len
        if length > most:
            raise InvalidRequest(
                f"infill has {length} tokens; the model holds {most}", param="infill"
            )
        return Prompt(tokens, with_holes(parts))

    @property
    def fills(self) -> bool:
        """Whether the model fills holes."""
        return self._generations.target.any_subset

    def _require_any_subset(self, field: str) -> None:
        if not self.fills:
            raise InvalidRequest(f"{field} is not supported by this model", param=field)
