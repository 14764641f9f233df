"""The `logprobs` object of the completions API, chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from foredraft.types import Committed

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

    def of(self, tokens: Sequence[Committed]) -> dict[str, Any] | None:
        """Return the object of the next tokens, None where nobody asked for logprobs."""
        told = [(each.token, each.logprobs) for each in tokens if each.logprobs is not None]
        if not told:
            return None
        texts = [self._text(token) for token, _ in told]
        offsets = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        tops: list[dict[str, float] | None] = []
        for text, (_, each) in zip(texts, told, strict=True):
            top = {text: _finite(each.logprob)} if each.top else {}
            # The chosen token is there too, as in the OpenAI API; of equal texts the best counts.
            for token, logprob in reversed(each.top):
                top[self._text(token)] = _finite(logprob)
            tops.append(dict(sorted(top.items(), key=lambda item: -item[1])) or None)
        return {
            "tokens": texts,
            "token_logprobs": [_finite(each.logprob) for _, each in told],
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
