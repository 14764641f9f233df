"""From an answer's text to its tool calls, as the text comes: sans-I/O, one object per answer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from deployments.ingress.openai.chat.tools import (
    BEFORE_ARGUMENTS,
    BEFORE_NAME,
    CLOSING,
    OPENING,
)
from deployments.ingress.stream.detokenizer import overlap


@dataclass(slots=True)
class Called:
    """What a part of a text adds: content, and to each call its name or arguments."""

    content: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)


class ToolCallText:
    """Reads a text that follows the grammar of tool calls (tools.py)."""

    def __init__(self) -> None:
        self._held = ""
        self._ended = False
        self._found = Called()
        self._calls = 0
        # Whether the text ends behind a whole call.
        self.called = False
        self._reading = self._read()
        next(self._reading)

    def feed(self, text: str) -> Called:
        """Take in text; return what it adds. What may be the beginning of a tag is held back."""
        self._held += text
        next(self._reading, None)
        found, self._found = self._found, Called()
        return found

    def finish(self) -> Called:
        """Return what is still held back, once the text has ended, wherever that is."""
        self._ended = True
        return self.feed("")

    def _read(self) -> Iterator[None]:
        """Go on as far as the text goes; each yield waits for more of it."""
        while OPENING not in self._held and not self._ended:
            keep = overlap(self._held, OPENING)
            self._say(self._take(len(self._held) - keep))
            yield
        before, tag, rest = self._held.partition(OPENING)
        self._say(before)
        self._held = rest
        while tag:
            yield from self._call()
            # Between two calls there is nothing but a line's end.
            while OPENING not in self._held:
                yield
            self._held = self._held.partition(OPENING)[2]

    def _call(self) -> Iterator[None]:
        while not self._held.startswith(BEFORE_NAME):
            yield
        self._take(len(BEFORE_NAME))
        while BEFORE_ARGUMENTS not in self._held:
            yield
        name, _, self._held = self._held.partition(BEFORE_ARGUMENTS)
        index, self._calls, self.called = self._calls, self._calls + 1, False
        begun = {"index": index, "id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
        self._found.calls.append(begun | {"function": {"name": name, "arguments": ""}})
        end = _ObjectEnd()
        while True:
            size = end.find(self._held)
            if part := self._take(len(self._held) if size is None else size):
                self._add(index, part)
            if size is not None:
                break
            yield
        while not self._held.startswith(CLOSING):
            yield
        self._take(len(CLOSING))
        self.called = True

    def _add(self, index: int, arguments: str) -> None:
        """Add to a call's arguments: one entry for each call, as clients join chunks by it."""
        calls = self._found.calls
        if calls and calls[-1]["index"] == index:
            calls[-1]["function"]["arguments"] += arguments
        else:
            calls.append({"index": index, "function": {"arguments": arguments}})

    def _take(self, size: int) -> str:
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def _say(self, text: str) -> None:
        self._found.content += text


class _ObjectEnd:
    """Finds the end of a JSON object, which comes in parts."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def find(self, part: str) -> int | None:
        """Return how much of the next part belongs to the object, None if all and more does."""
        for at, letter in enumerate(part):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = letter == "\\", letter != '"'
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if not self._depth:
                    return at + 1
        return None
