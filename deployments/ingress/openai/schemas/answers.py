"""What routes answer; the handlers write it as JSON values.

Chunks are described beside the whole answers: each is the data of a server-sent event.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from deployments.ingress.openai.errors import Failure
from deployments.ingress.openai.schemas.parts import Answered, Choice, Metrics, Usage


class TextLogprobs(Answered):
    """Logprobs by position; offsets in characters."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class FilledHole(Answered):
    """The text of one hole of an infill: of the part with this number."""

    part: int
    text: str


class TextChoice(Choice):
    """A continuation of a prompt, or what a chunk adds to it.

    Of an infill it is the holes' texts together and one by one, or what a chunk adds to a part.
    """

    text: str
    logprobs: TextLogprobs | None
    part: int | None = None
    parts: list[FilledHole] | None = None


class Completion(Answered):
    """The answer of /v1/completions, whole or one chunk of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None = None
    metrics: Metrics | None = None


class Likely(Answered):
    """A token and its logprob; bytes are what it spells."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Likely):
    """A token of the answer, and the likeliest in its place."""

    top_logprobs: list[Likely]


class ChatLogprobs(Answered):
    """Logprobs of an answer's tokens."""

    content: list[TokenLogprob]
    refusal: None


class FunctionCall(Answered):
    """A function's name and its arguments, a JSON object as text."""

    name: str
    arguments: str


class FunctionCallPart(Answered):
    """What a chunk adds to a call's function: its name once, then more of its arguments."""

    name: str | None = None
    arguments: str


class Call(Answered):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class CallChunk(Answered):
    """What a chunk adds to the call of an index; its first has id and type."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCallPart


class AssistantMessage(Answered):
    """The model's message."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[Call] | None = None


class MessageDelta(Answered):
    """What a chunk adds to the model's message; its first has the role."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[CallChunk] | None = None


class ChatChoice(Choice):
    """One message."""

    message: AssistantMessage
    logprobs: ChatLogprobs | None


class ChatChunkChoice(Choice):
    """What a chunk adds to one message."""

    delta: MessageDelta
    logprobs: ChatLogprobs | None


class ChatCompletion(Answered):
    """The answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    metrics: Metrics


class ChatChunk(Answered):
    """One chunk of a stream; the last may have no choices, but the usage."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    metrics: Metrics | None = None


class StreamFailure(Answered):
    """The event of a stream that fails, before its [DONE]."""

    error: Failure


class Tokenized(Answered):
    """Token ids, and how many the model holds; token_strs where they were asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None = None


class Detokenized(Answered):
    """The text of token ids."""

    prompt: str


class Model(Answered):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(Answered):
    """The models that are served."""

    object: Literal["list"]
    data: list[Model]


class Release(Answered):
    """The server's version."""

    version: str


class Live(Answered):
    """The replica answers."""

    status: Literal["ok"]


class Health(BaseModel):
    """What serves; a pool's figures stand beside its model's name and numerics."""

    model_config = ConfigDict(extra="allow")

    status: Literal["ok"]
    instance: str | None = None
    verifier: dict[str, Any] | None = None
    drafter: dict[str, Any] | None = None
