"""The fields that completion and chat requests share, and what they come to."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from deployments.ingress.openai.errors import ModelNotFound
from deployments.ingress.openai.speculative import SpeculativeOptions
from deployments.ingress.openai.structured import ResponseFormat, StructuredOutputs
from foredraft.denoising import Unmasking
from foredraft.errors import InvalidRequest
from foredraft.limits import MAX_BIASES, MAX_GRAMMAR, MAX_SALT, MIN_TEMPERATURE, check_range
from foredraft.types import Grammar, LogitsParams, SamplingParams

MAX_N = 16
MAX_TOKENS = 1 << 20
MAX_STOP = 16
MAX_STOP_LENGTH = 256
MAX_STOP_TOKENS = 128
# What travels; the target's vocabulary bounds it further.
MAX_TOP_K = (1 << 32) - 1

# Fields of the API and of its extensions that are not served: only the value that asks for nothing
# passes, because silently ignoring them would break the promise. So does null, for any field.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_special_tokens": (True,),
    "detokenize": (True,),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "use_beam_search": (False,),
}
# What describes the request, and asks for nothing.
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
    """What a stream carries beside the text; resumable gives its events ids (Last-Event-ID)."""

    include_usage: StrictBool = False
    cadence: Literal["block", "token"] = "block"
    continuous_usage_stats: StrictBool = False
    resumable: StrictBool = False


class GenerationFields(BaseModel):
    """A request for text. A field that is neither served nor known to be neutral is refused."""

    model_config = ConfigDict(extra="allow")
    # More of them, of one API.
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    model: str | None = None
    n: StrictInt | None = Field(1, ge=1, le=MAX_N)
    max_tokens: StrictInt | None = Field(None, ge=1, le=MAX_TOKENS)
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
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    cache_salt: str | None = Field(None, max_length=MAX_SALT, pattern=r"^[ -~]*$")
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: StrictBool = False
    speculative: SpeculativeOptions = SpeculativeOptions()

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}

    @abstractmethod
    def length(self, prompt_tokens: int, max_len: int) -> int:
        """Return how many tokens an answer may have, behind a prompt of so many."""

    @property
    @abstractmethod
    def top_logprobs_asked(self) -> int | None:
        """How many of the likeliest tokens each token's logprob comes with; None: no logprobs."""

    @property
    def with_prompt(self) -> bool:
        """Whether the answer begins with the prompt."""
        return False

    @property
    def unmasked_by(self) -> Unmasking | None:
        """Which slots a diffusion target fills in a step; None: those that it is configured to."""
        return None

    @property
    def without_text(self) -> bool:
        """Whether the prompt alone is wanted, with its logprobs, and no token behind it."""
        return False

    def check(self, model_name: str) -> None:
        """Raise InvalidRequest naming the first field that cannot be honoured."""
        if self.model is not None and self.model != model_name:
            raise ModelNotFound(self.model)
        neutral = {**_NEUTRAL, **self.neutral}
        for name, value in (self.model_extra or {}).items():
            if value is not None and name not in _HARMLESS and value not in neutral.get(name, ()):
                raise InvalidRequest(f"{name[:64]} is not supported", param=name[:64])
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

    def field_of(self, param: str | None) -> str | None:
        """Return what a client calls a field that the services name."""
        if param == "grammar":
            return "structured_outputs" if self.structured_outputs else "response_format"
        own = {
            "max_new_tokens": "max_tokens",
            "prefix": "prompt",
            "prefix length": "prompt",
            "layout.length": "max_tokens",
        }
        return own.get(param or "", param)

    @property
    def samples(self) -> int:
        """How many answers each prompt gets."""
        return self.n or 1

    @property
    def candidates(self) -> int:
        """How many answers are decoded for each prompt, of which the best `samples` are given."""
        return self.samples

    def sampling(self, sample: int) -> SamplingParams:
        """The sampling parameters of a prompt's answer, null fields at their defaults.

        A temperature too small to divide by is 0, as in vLLM.

        Answer number i has seed + i, and without a seed a fresh one.
        """
        temperature = 1.0 if self.temperature is None else self.temperature
        seed = secrets.randbits(63) if self.seed is None else self.seed + sample
        return SamplingParams(
            temperature=temperature if temperature >= MIN_TEMPERATURE else 0.0,
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
        """What the text must follow, if anything; raise InvalidRequest where it is given twice."""
        found = self.response_format.grammar() if self.response_format else None
        field = "response_format"
        if self.structured_outputs is not None:
            field = "structured_outputs"
            if found is not None:
                raise InvalidRequest(f"response_format and {field} exclude each other", param=field)
            found = self.structured_outputs.as_grammar()
        if found is not None:
            check_grammar(field, found)
        return found


def check_grammar(field: str, grammar: Grammar) -> None:
    """Raise InvalidRequest naming the field where its grammar is too long, or no valid Unicode."""
    check_range(f"{field} length", len(grammar.text), 1, MAX_GRAMMAR)
    if not grammar.text.isascii() and any("\ud800" <= c <= "\udfff" for c in grammar.text):
        raise InvalidRequest(f"{field} is no valid Unicode", param=field)


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
