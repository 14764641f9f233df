"""The `logprobs` object of the completions API, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer

from foredraft.types import TokenLogprobs

# JSON has no infinity; vLLM's stand-in for a token that cannot be.
_LEAST = -9999.0


class LogprobsText:
    """Writes the logprobs of a text's tokens; offsets count the characters of the tokens before.

    A token is written as it decodes by itself, so one that ends inside a character has a
    replacement character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def of(self, told: Iterable[tuple[int, TokenLogprobs | None]]) -> dict[str, Any]:
        """Return the object of the text's next tokens; nothing is told of a prompt's first one."""
        texts: list[str] = []
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for token, each in told:
            text = self._text(token)
            texts.append(text)
            logprobs.append(None if each is None else _finite(each.logprob))
            tops.append(None if each is None else self._top(text, each))
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": logprobs,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, text: str, told: TokenLogprobs) -> dict[str, float] | None:
        """Return the likeliest tokens and the chosen one; of equal texts the best counts."""
        if not told.top:
            return None
        top = {text: _finite(told.logprob)}
        for token, logprob in reversed(told.top):
            top[self._text(token)] = _finite(logprob)
        return dict(sorted(top.items(), key=lambda item: -item[1]))

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
