"""`POST /v1/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, StrictBool, StrictInt

from deployments.ingress.openai.chat import tools
from deployments.ingress.openai.chat.messages import Message
from deployments.ingress.openai.chat.tools import MAX_TOOLS, NamedTool, Tool, ToolUse, tool_use
from deployments.ingress.openai.fields import MAX_TOKENS, GenerationFields
from foredraft.errors import InvalidRequest
from foredraft.limits import MAX_LOGPROBS
from foredraft.types import Grammar

# KV is reserved for the longest answer, so a request without a bound does not get the context.
DEFAULT_MAX_TOKENS = 1024
MAX_MESSAGES = 4096
MAX_TEMPLATE_ARGUMENTS = 4096
# What a template is given by other fields.
_RESERVED = {"add_generation_prompt", "messages", "tools"}


class ChatRequest(GenerationFields):
    """A conversation to answer."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "echo": (False,),
        "modalities": (["text"],),
    }

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: StrictInt | None = Field(None, ge=1, le=MAX_TOKENS)
    logprobs: StrictBool | None = False
    top_logprobs: StrictInt | None = Field(None, ge=0, le=MAX_LOGPROBS)
    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: StrictBool | None = True
    add_generation_prompt: StrictBool = True
    continue_final_message: StrictBool = False
    chat_template_kwargs: dict[str, Any] | None = None

    def check(self, model_name: str) -> None:
        super().check(model_name)
        asked = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(asked) > 1:
            raise InvalidRequest(
                "max_completion_tokens and max_tokens differ", param="max_completion_tokens"
            )
        if asked and (self.min_tokens or 0) > min(each for each in asked if each is not None):
            raise InvalidRequest("min_tokens is larger than max_tokens", param="min_tokens")
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs=true", param="top_logprobs")
        if self.continue_final_message:
            self._check_continued()
        self._check_template_arguments()

    def length(self, prompt_tokens: int, max_len: int) -> int:
        asked = self.max_completion_tokens or self.max_tokens
        return asked or max(1, min(max_len - prompt_tokens, DEFAULT_MAX_TOKENS))

    @property
    def top_logprobs_asked(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def field_of(self, param: str | None) -> str | None:
        if param == "grammar" and self.tool_use() is not None:
            return "tools"
        found = super().field_of(param)
        if found == "max_tokens" and self.max_completion_tokens is not None:
            return "max_completion_tokens"
        return "messages" if found == "prompt" else found

    def tool_use(self) -> ToolUse | None:
        """What the answer may call, None if nothing; raise InvalidRequest naming a field."""
        return tool_use(self.tools, self.tool_choice, self.parallel_tool_calls is not False)

    def grammar(self) -> Grammar | None:
        found, use = super().grammar(), self.tool_use()
        if use is None:
            return found
        if found is not None:
            raise InvalidRequest(
                "response_format or structured_outputs, and tools, exclude each other",
                param="tools",
            )
        return tools.grammar(use)

    def _check_continued(self) -> None:
        field = "continue_final_message"
        if self.add_generation_prompt and "add_generation_prompt" in self.model_fields_set:
            raise InvalidRequest(
                f"{field} and add_generation_prompt exclude each other", param=field
            )
        last = self.messages[-1]
        if last.role != "assistant" or not last.content or last.tool_calls:
            raise InvalidRequest(
                f"{field} needs a last message of the assistant, with text", param=field
            )

    def _check_template_arguments(self) -> None:
        field, given = "chat_template_kwargs", self.chat_template_kwargs or {}
        for name in given:
            if name in _RESERVED or not name.isidentifier():
                raise InvalidRequest(f"{field} has {name[:64]!r}", param=field)
        if len(json.dumps(given)) > MAX_TEMPLATE_ARGUMENTS:
            raise InvalidRequest(
                f"{field} has more than {MAX_TEMPLATE_ARGUMENTS} characters", param=field
            )
