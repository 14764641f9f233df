"""One choice of a chat answer: a message, or what a chunk adds to it."""

from __future__ import annotations

from typing import Any

from deployments.ingress.openai.chat.logprobs import ChatLogprobs
from deployments.ingress.openai.chat.tool_calls import Called, ToolCallText
from deployments.ingress.stream.sse import Delta
from foredraft.types import FinishReason

_ROLE = "assistant"


class FreeText:
    """The text of an answer that can call nothing: all of it is content."""

    called = False

    def feed(self, text: str) -> Called:
        """Return the text as content."""
        return Called(text)

    def finish(self) -> Called:
        """Return nothing: nothing was held back."""
        return Called()


ChatText = ToolCallText | FreeText


class ChatChoice:
    """Writes one choice. text separates content from tool calls."""

    def __init__(self, text: ChatText, logprobs: ChatLogprobs | None) -> None:
        self._text = text
        self._logprobs = logprobs
        self._begun = False

    def whole(self, answer: Delta) -> dict[str, Any]:
        """Return the choice's message and logprobs."""
        found = called(self._text, answer)
        message: dict[str, Any] = {"role": _ROLE, "content": found.content, "refusal": None}
        if found.calls:
            message |= {"content": found.content or None, "tool_calls": joined(found.calls)}
        return {"message": message, "logprobs": self._logprobs_of(answer)}

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        """Return what the delta adds to the message; before it, once, the role."""
        found = called(self._text, delta)
        added: dict[str, Any] = {}
        if found.content:
            added["content"] = found.content
        if found.calls:
            added["tool_calls"] = found.calls
        chunks = [{"delta": added, "logprobs": self._logprobs_of(delta)}]
        if not self._begun:
            self._begun = True
            chunks.insert(0, {"delta": {"role": _ROLE, "content": ""}, "logprobs": None})
        return chunks

    def finish_reason(self, reason: FinishReason) -> str:
        """Return why the choice ended: tool_calls where it did behind one."""
        return finish_name(self._text, reason)

    def _logprobs_of(self, delta: Delta) -> dict[str, Any] | None:
        return self._logprobs.of(delta.tokens) if self._logprobs and delta.tokens else None


def called(text: ChatText, delta: Delta) -> Called:
    """Return what a delta adds to the content and the calls of an answer that text reads."""
    found = text.feed(delta.text)
    if delta.finish_reason is not None:
        rest = text.finish()
        found = Called(found.content + rest.content, found.calls + rest.calls)
    return found


def finish_name(text: ChatText, reason: FinishReason) -> str:
    """Return why an answer ended: tool_calls where it did behind one."""
    return "tool_calls" if reason is FinishReason.STOP and text.called else str(reason)


def joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return whole calls, made of a stream's parts."""
    calls: list[dict[str, Any]] = []
    for part in parts:
        if "id" in part:
            calls.append({"id": part["id"], "type": part["type"], "function": part["function"]})
        else:
            calls[-1]["function"]["arguments"] += part["function"]["arguments"]
    return calls
