"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from deployments.denoiser_pool import UnmaskingConfig
from deployments.ingress.openai.fields import MAX_N, MAX_TOKENS, GenerationFields
from foredraft.denoising import Unmasking
from foredraft.errors import InvalidRequest
from foredraft.limits import MAX_LOGPROBS

DEFAULT_MAX_TOKENS = 16
# Prompts times n, or best_of.
MAX_CHOICES = 64
# Of a text with holes.
MAX_PARTS = 256


class Hole(BaseModel):
    """A part of a text that is to be filled with so many tokens."""

    model_config = ConfigDict(extra="forbid")

    mask: StrictInt = Field(ge=1, le=MAX_TOKENS)


class CompletionRequest(GenerationFields):
    """Prompts to continue, up to a suffix where the model can fill in; or a text with holes."""

    max_tokens: StrictInt | None = Field(None, ge=0, le=MAX_TOKENS)
    prompt: str | list[StrictInt] | list[str] | list[list[StrictInt]] | None = None
    infill: list[str | list[StrictInt] | Hole] | None = Field(None, max_length=MAX_PARTS)
    best_of: StrictInt | None = Field(None, ge=1, le=MAX_N)
    echo: StrictBool | None = False
    suffix: str | None = None
    unmasking: UnmaskingConfig | None = None
    logprobs: StrictInt | None = Field(None, ge=0, le=MAX_LOGPROBS)

    def check(self, model_name: str) -> None:
        super().check(model_name)
        if self.infill is not None:
            self._check_infill(self.infill)
        elif self.prompt is None:
            raise InvalidRequest("prompt is missing", param="prompt")
        if self.max_tokens == 0 and not self.echo:
            raise InvalidRequest("max_tokens 0 goes with echo", param="max_tokens")
        if (self.min_tokens or 0) > self.length(0, MAX_TOKENS):
            raise InvalidRequest("min_tokens is larger than max_tokens", param="min_tokens")
        if self.suffix and self.echo:
            raise InvalidRequest("echo goes without a suffix", param="echo")
        if self.candidates < self.samples:
            raise InvalidRequest("best_of is smaller than n", param="best_of")
        if self.stream and self.candidates > self.samples:
            raise InvalidRequest("best_of cannot be streamed", param="best_of")

    def _check_infill(self, infill: Sequence[str | list[int] | Hole]) -> None:
        """Raise InvalidRequest unless there are given parts and holes, and all else goes with it.

        Holes have no end but their length.
        """
        holes = sum(isinstance(part, Hole) for part in infill)
        if not 0 < holes < len(infill):
            raise InvalidRequest("infill needs a hole and a part that is given", param="infill")
        excluded = {
            "prompt": self.prompt,
            "suffix": self.suffix,
            "echo": self.echo,
            "max_tokens": self.max_tokens,
            "min_tokens": self.min_tokens,
            "stop": self.stop,
        }
        for name, value in excluded.items():
            if value:
                raise InvalidRequest(f"{name} goes without infill", param=name)

    @property
    def candidates(self) -> int:
        return self.best_of or self.samples

    def field_of(self, param: str | None) -> str | None:
        # Candidates are ranked by their logprobs.
        if param == "logprobs" and self.logprobs is None:
            return "best_of"
        if self.infill is not None and param in ("layout.length", "layout.given", "prefix length"):
            return "infill"
        return super().field_of(param)

    def length(self, prompt_tokens: int, max_len: int) -> int:
        # The verifier scores a prompt in its first round, which has a token.
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else max(1, self.max_tokens)

    @property
    def unmasked_by(self) -> Unmasking | None:
        return None if self.unmasking is None else self.unmasking.rule()

    @property
    def without_text(self) -> bool:
        return self.max_tokens == 0

    @property
    def top_logprobs_asked(self) -> int | None:
        return self.logprobs

    @property
    def with_prompt(self) -> bool:
        return bool(self.echo)

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """All prompts; raise InvalidRequest when there are too many, or one is empty."""
        prompt = self.prompt or ""
        several = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
        prompts: list[Any] = prompt if several else [prompt]  # type: ignore[assignment]
        if len(prompts) * self.candidates > MAX_CHOICES:
            raise InvalidRequest(f"at most {MAX_CHOICES} answers in all", param="prompt")
        if not all(prompts):
            raise InvalidRequest("prompt is empty", param="prompt")
        return prompts
