"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, StrictBool, StrictInt

from deployments.ingress.openai.fields import GenerationFields
from foredraft.errors import InvalidRequest
from foredraft.limits import MAX_LOGPROBS

DEFAULT_MAX_TOKENS = 16
# Prompts times n.
MAX_CHOICES = 64


class CompletionRequest(GenerationFields):
    """Prompts to continue."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"best_of": (1,), "suffix": ("",)}

    prompt: str | list[StrictInt] | list[str] | list[list[StrictInt]]
    echo: StrictBool | None = False
    logprobs: StrictInt | None = Field(None, ge=0, le=MAX_LOGPROBS)

    def check(self, model_name: str) -> None:
        super().check(model_name)
        if (self.min_tokens or 0) > self.length(0, 0):
            raise InvalidRequest("min_tokens is larger than max_tokens", param="min_tokens")

    def length(self, prompt_tokens: int, max_len: int) -> int:
        return self.max_tokens or DEFAULT_MAX_TOKENS

    @property
    def top_logprobs_asked(self) -> int | None:
        return self.logprobs

    @property
    def with_prompt(self) -> bool:
        return bool(self.echo)

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """All prompts; raise InvalidRequest when there are too many, or one is empty."""
        prompt = self.prompt
        several = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
        prompts: list[Any] = prompt if several else [prompt]  # type: ignore[assignment]
        if len(prompts) * self.samples > MAX_CHOICES:
            raise InvalidRequest(f"at most {MAX_CHOICES} answers in all", param="prompt")
        if not all(prompts):
            raise InvalidRequest("prompt is empty", param="prompt")
        return prompts
