"""One choice's text and logprobs as the API writes them: with the prompt before them, if asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from deployments.ingress.openai.logprobs import LogprobsText
from deployments.ingress.stream.sse import Delta
from foredraft.types import TokenLogprobs


class ChoiceWriter:
    """Writes one choice, delta after delta. echoed is the prompt to begin with, empty if none."""

    def __init__(self, tokenizer: Tokenizer, echoed: Sequence[int], logprobs: bool) -> None:
        self._echoed = echoed
        self._prompt = str(tokenizer.decode(list(echoed), skip_special_tokens=False))
        self._logprobs = LogprobsText(tokenizer) if logprobs else None

    def text(self, delta: Delta) -> str:
        """Return the delta's text; call `logprobs` after it."""
        return self._prompt + delta.text

    def logprobs(self, delta: Delta) -> dict[str, Any] | None:
        """Return the logprobs object of the delta's tokens; the prompt is done with after it."""
        tokens: list[tuple[int, TokenLogprobs | None]] = []
        if self._echoed:
            tokens = list(zip(self._echoed, (None, *delta.prompt_logprobs), strict=False))
        self._echoed, self._prompt = (), ""
        tokens += [(each.token, each.logprobs) for each in delta.tokens]
        return self._logprobs.of(tokens) if self._logprobs and tokens else None
