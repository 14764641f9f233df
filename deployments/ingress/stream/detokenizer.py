"""From committed tokens to text, with stop strings: sans-I/O, one object per request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Piece(NamedTuple):
    """Text that may be sent, and whether a stop string ended the request."""

    text: str
    stopped: bool


class TextStream:
    """Turns tokens into text that can be sent at once.

    Incomplete UTF-8 is held back until its last byte comes. So is text that could be the beginning
    of a stop string, which is never sent: the text is the same however the tokens are grouped.
    The text of the first min_tokens tokens ends nothing.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._tokenizer = tokenizer
        self._decode = DecodeStream(skip_special_tokens=True)
        self._stop = tuple(stop)
        self._min_tokens = min_tokens
        self._held = ""
        self._ids: list[int] = []
        self._decoded = 0

    def feed(self, token: int) -> Piece:
        """Take one token; return the text that it releases. After a stop nothing may be fed."""
        self._ids.append(token)
        text = self._decode.step(self._tokenizer, token)
        if text is None:
            return Piece("", False)
        self._decoded += len(text)
        return self._release(self._held + text)

    def finish(self) -> Piece:
        """Return what is still held back: also incomplete UTF-8, as replacement characters."""
        whole = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        text = self._release(self._held + whole[self._decoded :])
        if text.stopped:
            return text
        held, self._held = self._held, ""
        return Piece(text.text + held, False)

    def _release(self, text: str) -> Piece:
        if len(self._ids) <= self._min_tokens:
            return Piece(text, False)
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self._held = ""
            return Piece(text[: min(found)], True)
        keep = max((overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return Piece(text[: len(text) - keep], False)


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of text that is a beginning of stop."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0
