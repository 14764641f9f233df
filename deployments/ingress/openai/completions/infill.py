"""One choice of an infill: the text of each hole, and of a stream which hole it is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer

from deployments.ingress.openai.completions.logprobs import LogprobsText
from deployments.ingress.openai.completions.request import Hole
from deployments.ingress.stream.detokenizer import TextStream
from deployments.ingress.stream.sse import Delta
from foredraft.types import Committed, FinishReason


class InfillChoice:
    """Writes one choice. Each hole is a text of its own: its last token and the next hole's first
    are no neighbours.
    """

    def __init__(
        self, tokenizer: Tokenizer, parts: Sequence[str | list[int] | Hole], logprobs: bool
    ) -> None:
        self._tokenizer = tokenizer
        # Of each token to come, the part that it fills, by its number.
        self._places = iter(_places(parts))
        self._number = next(number for number, part in enumerate(parts) if isinstance(part, Hole))
        self._text = TextStream(tokenizer)
        self._logprobs = LogprobsText(tokenizer) if logprobs else None

    def whole(self, answer: Delta) -> dict[str, Any]:
        """Return the holes' texts, together and one by one, and logprobs."""
        texts: dict[int, str] = {}
        for number, text in self._pieces(answer):
            texts[number] = texts.get(number, "") + text
        return {
            "text": "".join(texts.values()),
            "parts": [{"part": number, "text": text} for number, text in texts.items()],
            "logprobs": self._logprobs_of(answer.tokens),
        }

    def chunks(self, delta: Delta) -> list[dict[str, Any]]:
        """Return one chunk for each hole that the delta adds to; the last has its logprobs."""
        chunks: list[dict[str, Any]] = [
            {"text": text, "part": number, "logprobs": None} for number, text in self._pieces(delta)
        ]
        chunks[-1]["logprobs"] = self._logprobs_of(delta.tokens)
        return chunks

    def finish_reason(self, reason: FinishReason) -> str:
        """Return the reason as it is."""
        return str(reason)

    def _pieces(self, delta: Delta) -> list[tuple[int, str]]:
        """Return the text that the delta's tokens release, hole by hole: at least one piece."""
        pieces, text = [], ""
        for committed in delta.tokens:
            number = next(self._places)
            if number != self._number:
                pieces.append((self._number, text + self._text.finish().text))
                self._number, self._text, text = number, TextStream(self._tokenizer), ""
            text += self._text.feed(committed.token).text
        if delta.finish_reason is not None:
            text += self._text.finish().text
        return [*pieces, (self._number, text)]

    def _logprobs_of(self, tokens: Sequence[Committed]) -> dict[str, Any] | None:
        if self._logprobs is None or not tokens:
            return None
        return self._logprobs.of((each.token, each.logprobs) for each in tokens)


def _places(parts: Sequence[str | list[int] | Hole]) -> Iterator[int]:
    """Yield for each masked token of a text the number of its part."""
    for number, part in enumerate(parts):
        if isinstance(part, Hole):
            for _ in range(part.mask):
                yield number
