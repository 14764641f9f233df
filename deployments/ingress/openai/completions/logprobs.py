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

    def of(self, tokens: Iterable[tuple[int, TokenLogprobs | None]]) -> dict[str, Any]:
        """Return the object of the text's next tokens; a prompt's first one has none."""
        texts: list[str] = []
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for token, each in tokens:
            text = self._text(token)
            texts.append(text)
            logprobs.append(None if each is None else finite(each.logprob))
            tops.append(None if each is None else self._top(text, each))
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": logprobs,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, text: str, logprobs: TokenLogprobs) -> dict[str, float] | None:
        """Return the likeliest tokens and the chosen one; of equal texts the best counts."""
        if not logprobs.top:
            return None
        top = {text: finite(logprobs.logprob)}
        for token, logprob in reversed(logprobs.top):
            top[self._text(token)] = finite(logprob)
        return dict(sorted(top.items(), key=lambda item: -item[1]))

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def finite(logprob: float) -> float:
    """Return the logprob as JSON can have it."""
    return max(logprob, _LEAST)
