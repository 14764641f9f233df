"""The `logprobs` object of the chat API, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Tokenizer

from deployments.ingress.openai.completions.logprobs import finite
from foredraft.types import Committed


class ChatLogprobs:
    """Writes tokens' logprobs. spelling[id] holds a token's bytes, empty where none are known."""

    def __init__(self, tokenizer: Tokenizer, spelling: Sequence[bytes]) -> None:
        self._tokenizer = tokenizer
        self._spelling = spelling

    def of(self, tokens: Iterable[Committed]) -> dict[str, Any]:
        """Return the object of a text's next tokens."""
        content = []
        for committed in tokens:
            found = committed.logprobs
            if found is not None:
                top = [self._entry(*each) for each in found.top]
                entry = self._entry(committed.token, found.logprob)
                content.append(entry | {"top_logprobs": top})
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        text = str(self._tokenizer.decode([token], skip_special_tokens=False))
        known = self._spelling[token] if token < len(self._spelling) else b""
        return {
            "token": text,
            "logprob": finite(logprob),
            "bytes": list(known or text.encode()),
        }
