"""One choice of a completion: text and logprobs, with the prompt before them if asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from deployments.ingress.openai.completions.logprobs import LogprobsText
from deployments.ingress.stream.sse import Delta
from foredraft.types import FinishReason, TokenLogprobs


class CompletionChoice:
    """Writes one choice, delta after delta. echoed is the prompt to begin with, empty if none."""

    def __init__(self, tokenizer: Tokenizer, echoed: Sequence[int], logprobs: bool) -> None:
        self._echoed = echoed
        self._prompt = str(tokenizer.decode(list(echoed), skip_special_tokens=False))
        self._logprobs = LogprobsText(tokenizer) if logprobs else None

    def whole(self, answer: Delta) -> dict[str, Any]:
        """Return the choice's text and logprobs."""
        text = self._prompt + answer.text
        return {"text": text, "logprobs": self._logprobs_of(answer)}

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        """Return one chunk's text and logprobs."""
        return [self.whole(delta)]

    def finish_reason(self, reason: FinishReason) -> str:
        """Return the reason as it is."""
        return str(reason)

    def _logprobs_of(self, delta: Delta) -> dict[str, Any] | None:
        """Return the logprobs object of the delta's tokens; the prompt is done with after it."""
        tokens: list[tuple[int, TokenLogprobs | None]] = []
        if self._echoed:
            tokens = list(zip(self._echoed, (None, *delta.prompt_logprobs), strict=False))
        self._echoed, self._prompt = (), ""
        tokens += [(each.token, each.logprobs) for each in delta.tokens]
        return self._logprobs.of(tokens) if self._logprobs and tokens else None
