"""`POST /tokenize` and `POST /detokenize`: texts and conversations as token ids, and back."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from deployments.ingress.generations import Generations
from deployments.ingress.openai.chat.handler import Chat
from deployments.ingress.openai.chat.messages import Message
from deployments.ingress.openai.chat.request import MAX_MESSAGES, ChatRequest
from deployments.ingress.openai.chat.tools import MAX_TOOLS, Tool
from deployments.ingress.openai.errors import ModelNotFound
from deployments.ingress.openai.prompts import Prompts
from foredraft.limits import MAX_PREFIX, check_tokens


class TokenizeRequest(BaseModel):
    """A text or a conversation. add_special_tokens is whether a text gets the tokenizer's."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = Field(None, min_length=1, max_length=MAX_MESSAGES)
    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    add_generation_prompt: StrictBool = True
    continue_final_message: StrictBool = False
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: StrictBool = True
    return_token_strs: StrictBool | None = False

    @model_validator(mode="after")
    def _one(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of prompt and messages")
        return self

    @property
    def chat(self) -> ChatRequest:
        """The same conversation as a chat request."""
        fields = ("messages", "tools", "continue_final_message", "chat_template_kwargs")
        given = {name: getattr(self, name) for name in fields}
        if "add_generation_prompt" in self.model_fields_set:
            given["add_generation_prompt"] = self.add_generation_prompt
        return ChatRequest.model_construct(set(given), **given)


class DetokenizeRequest(BaseModel):
    """Token ids to decode."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    tokens: list[StrictInt] = Field(max_length=MAX_PREFIX)


class Tokens:
    """Answers both routes, by the tokenizer that the target's texts are read with."""

    def __init__(self, generations: Generations, prompts: Prompts, chat: Chat) -> None:
        self._generations = generations
        self._prompts, self._chat = prompts, chat

    async def tokenize(self, request: TokenizeRequest) -> dict[str, Any]:
        """Return token ids, how many, and how many the model holds; raise InvalidRequest."""
        self._check(request.model)
        if request.prompt is None:
            asked = request.chat
            asked.check(self._generations.name)
            tokens = await self._chat.tokens(asked)
        else:
            special = request.add_special_tokens
            tokens = await self._prompts.tokens(request.prompt, special=special)
        found = {
            "count": len(tokens),
            "max_model_len": self._generations.target.max_len,
            "tokens": list(tokens),
        }
        if request.return_token_strs:
            name = self._generations.tokenizer.id_to_token
            found["token_strs"] = [name(token) for token in tokens]
        return found

    def detokenize(self, request: DetokenizeRequest) -> dict[str, Any]:
        """Return the text, special tokens in it by their names; raise InvalidRequest."""
        self._check(request.model)
        tokenizer = self._generations.tokenizer
        check_tokens("tokens", request.tokens, tokenizer.get_vocab_size())
        return {"prompt": tokenizer.decode(request.tokens, skip_special_tokens=False)}

    def _check(self, model: str | None) -> None:
        if model is not None and model != self._generations.name:
            raise ModelNotFound(model)
