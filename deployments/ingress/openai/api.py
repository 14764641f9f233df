"""The OpenAI completions request and the bodies that answer it."""

from __future__ import annotations

import secrets
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from deployments.ingress.openai.structured import ResponseFormat, StructuredOutputs
from foredraft.errors import InvalidRequest
from foredraft.limits import (
    MAX_BIASES,
    MAX_GRAMMAR,
    MAX_LED_ROUNDS,
    MAX_LOGPROBS,
    MAX_SALT,
    check_range,
)
from foredraft.types import Acceptance, Grammar, LogitsParams, Proposal, SamplingParams
from orchestrator.config import DraftConfig, NgramConfig, OrchestratorConfig
from orchestrator.length.config import AdlConfig

DEFAULT_MAX_TOKENS = 16
MAX_N = 16
# Prompts times n.
MAX_CHOICES = 64
MAX_STOP = 16
MAX_STOP_LENGTH = 256
MAX_STOP_TOKENS = 128
# What travels; the target's vocabulary bounds it further.
MAX_TOP_K = (1 << 32) - 1

# Fields of the API and of its extensions that are not served: only the value that asks for nothing
# passes, because silently ignoring them would break the promise. So does null, for any field.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (True,),
    "best_of": (1,),
    "detokenize": (True,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "suffix": ("",),
    "use_beam_search": (False,),
}
# What says something of the request, and asks for nothing.
_HARMLESS = {
    "metadata",
    "priority",
    "prompt_cache_key",
    "request_id",
    "safety_identifier",
    "service_tier",
    "session_id",
    "spaces_between_special_tokens",
    "store",
    "user",
}


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    include_usage: StrictBool = False
    continuous_usage_stats: StrictBool = False


class SpeculativeOptions(BaseModel):
    """Our extension: how this request speculates.

    It never changes the tokens, unless `acceptance` asks for another rule than "coupled".
    """

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool = True
    proposal: Proposal | None = None
    ngram: NgramConfig | None = None
    adl: AdlConfig | None = None
    draft: DraftConfig | None = None
    acceptance: Acceptance | None = None
    verifier_led_rounds: StrictInt | None = Field(None, ge=0, le=MAX_LED_ROUNDS)
    detail: StrictBool = False
    trace: StrictBool = False

    def applied_to(self, config: OrchestratorConfig) -> OrchestratorConfig:
        """Return the server's configuration with this request's choices.

        Raise InvalidRequest where they do not go together.
        """
        chosen = {
            "proposal": self.proposal,
            "ngram": self.ngram,
            "adl": self.adl,
            "draft": self.draft,
            "acceptance": self.acceptance,
            "verifier_led_rounds": self.verifier_led_rounds,
        }
        asked = config.model_copy(update={k: v for k, v in chosen.items() if v is not None})
        if self.ngram is None and asked.acceptance is not Acceptance.COUPLED:
            # The server's n-gram trees serve the rule that verifies trees.
            asked = asked.model_copy(update={"ngram": NgramConfig()})
        if (fault := asked.why_unverifiable()) is not None:
            raise InvalidRequest(fault, param="speculative.acceptance")
        return asked


class CompletionRequest(BaseModel):
    """`POST /v1/completions`. A field that is neither served nor known to be neutral is refused."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    prompt: str | list[StrictInt] | list[str] | list[list[StrictInt]]
    n: StrictInt | None = Field(1, ge=1, le=MAX_N)
    max_tokens: StrictInt | None = Field(DEFAULT_MAX_TOKENS, ge=1, le=1 << 20)
    temperature: float | None = Field(1.0, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: StrictInt | None = Field(0, ge=-1, le=MAX_TOP_K)
    min_p: float | None = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    seed: StrictInt | None = Field(None, ge=-(1 << 63), le=(1 << 64) - 1)
    stop: str | list[str] | None = None
    stop_token_ids: list[StrictInt] | None = Field(None, max_length=MAX_STOP_TOKENS)
    ignore_eos: StrictBool | None = False
    min_tokens: StrictInt | None = Field(0, ge=0)
    presence_penalty: float | None = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    repetition_penalty: float | None = Field(1.0, ge=0.01, le=10, allow_inf_nan=False)
    logit_bias: dict[int, float] | None = Field(None, max_length=MAX_BIASES)
    allowed_token_ids: list[StrictInt] | None = Field(None, min_length=1)
    echo: StrictBool | None = False
    logprobs: StrictInt | None = Field(None, ge=0, le=MAX_LOGPROBS)
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    cache_salt: str | None = Field(None, max_length=MAX_SALT, pattern=r"^[ -~]*$")
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: StrictBool = False
    speculative: SpeculativeOptions = SpeculativeOptions()

    def check(self, model_name: str) -> None:
        """Raise InvalidRequest naming the first field that cannot be honoured."""
        if self.model is not None and self.model != model_name:
            raise ModelNotFound(self.model)
        for name, value in (self.model_extra or {}).items():
            if value is not None and name not in _HARMLESS and value not in _NEUTRAL.get(name, ()):
                raise InvalidRequest(f"{name[:64]} is not supported", param=name[:64])
        if (self.min_tokens or 0) > (self.max_tokens or DEFAULT_MAX_TOKENS):
            raise InvalidRequest("min_tokens is larger than max_tokens", param="min_tokens")
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options needs stream=true", param="stream_options")
        stops = self.stops
        if len(stops) > MAX_STOP:
            raise InvalidRequest(f"at most {MAX_STOP} stop strings", param="stop")
        if any(not 0 < len(stop) <= MAX_STOP_LENGTH for stop in stops):
            raise InvalidRequest(
                f"a stop string has 1 to {MAX_STOP_LENGTH} characters", param="stop"
            )

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def samples(self) -> int:
        """How many answers each prompt gets."""
        return self.n or 1

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

    def sampling(self, sample: int) -> SamplingParams:
        """The sampling parameters of a prompt's answer, null fields at their defaults.

        CompletionResponse number i has seed + i, and without a seed a fresh one.
        """
        seed = secrets.randbits(63) if self.seed is None else self.seed + sample
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=max(self.top_k or 0, 0),
            top_p=1.0 if self.top_p is None else self.top_p,
            min_p=self.min_p or 0.0,
            seed=seed & ((1 << 64) - 1),
        )

    def logits(self) -> LogitsParams:
        """What is done to the logits, null fields at their defaults."""
        return LogitsParams(
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            min_tokens=self.min_tokens or 0,
            logit_bias=tuple((self.logit_bias or {}).items()),
            allowed_token_ids=tuple(self.allowed_token_ids or ()),
        )

    def grammar(self) -> Grammar | None:
        """What the text must follow, if anything; raise InvalidRequest where it is said twice."""
        found = self.response_format.grammar() if self.response_format else None
        field = "response_format"
        if self.structured_outputs is not None:
            field = "structured_outputs"
            if found is not None:
                raise InvalidRequest(f"response_format and {field} exclude each other", param=field)
            found = self.structured_outputs.as_grammar()
        if found is not None:
            check_range(f"{field} length", len(found.text), 1, MAX_GRAMMAR)
            if not found.text.isascii() and any("\ud800" <= c <= "\udfff" for c in found.text):
                raise InvalidRequest(f"{field} is no valid Unicode", param=field)
        return found


class ModelNotFound(InvalidRequest):
    """The request names a model that is not served."""

    http_code = 404
    kind = "not_found_error"

    def __init__(self, name: str) -> None:
        super().__init__(f"model {name[:64]!r} does not exist", param="model")


def usage(prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the usage object; only tokens that were emitted count as completion.

    cached_tokens of the prompts' had been read for an earlier request.
    """
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
