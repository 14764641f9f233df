"""What answers chat requests."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi.responses import Response

from deployments.ingress.generations import Generations
from deployments.ingress.openai.answer import BodyKind
from deployments.ingress.openai.answering import Prompt, answer
from deployments.ingress.openai.chat.choice import ChatChoice, ChatText, FreeText
from deployments.ingress.openai.chat.logprobs import ChatLogprobs
from deployments.ingress.openai.chat.prompt import prompt_text
from deployments.ingress.openai.chat.request import ChatRequest
from deployments.ingress.openai.chat.tool_calls import ToolCallText
from deployments.ingress.openai.prompts import Prompts
from foredraft.chat_template import ChatTemplate
from foredraft.errors import InvalidRequest

_KIND = BodyKind("chatcmpl", "chat.completion", "chat.completion.chunk")


class Chat:
    """Answers conversations. template is None for a model without one; spelling is of its tokens
    (ChatLogprobs).
    """

    def __init__(
        self,
        generations: Generations,
        prompts: Prompts,
        template: ChatTemplate | None,
        spelling: Sequence[bytes],
    ) -> None:
        self._generations, self._prompts = generations, prompts
        self._template = template
        self._spelling = spelling

    @property
    def converses(self) -> bool:
        """Whether there is a chat template: without one every request is refused."""
        return self._template is not None

    async def tokens(self, request: ChatRequest) -> tuple[int, ...]:
        """Return the conversation's token ids; raise InvalidRequest naming a field."""
        if self._template is None:
            raise InvalidRequest(
                f"{self._generations.name} has no chat template: use /v1/completions",
                param="messages",
            )
        # The template writes the special tokens, as text.
        text = prompt_text(request, self._template)
        return await self._prompts.tokens(text, special=False, field="messages")

    async def answer(self, request: ChatRequest, last_event: str | None = None) -> Response:
        """Answer a conversation, n times; with stream=true in events as tokens are committed."""
        generations = self._generations
        generations.stopping.check()
        request.check(generations.name)
        tokens = await self.tokens(request)

        def writer(_: Prompt) -> ChatChoice:
            logprobs = ChatLogprobs(generations.tokenizer, self._spelling)
            return ChatChoice(text_of(request), logprobs if request.logprobs else None)

        return await answer(request, [Prompt(tokens)], generations, _KIND, writer, last_event)


def text_of(request: ChatRequest) -> ChatText:
    """Return what separates the content of one answer from its tool calls."""
    return FreeText() if request.tool_use() is None else ToolCallText()
