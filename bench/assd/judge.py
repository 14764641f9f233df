"""What filled texts are like: perplexity by another model, and the entropy of their tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from bench.assd.rounds import decide
from foredraft.layout import Layout
from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from verifier_service.targets.engine import VerifierEngine


def by_position(layout: Layout, ordered: Sequence[int]) -> list[int]:
    """Return the tokens of a text in order space by their positions."""
    text = [0] * layout.length
    for position, token in zip(layout.positions, ordered, strict=True):
        text[position] = token
    return text


class Judge:
    """A left-to-right model that scores texts."""

    def __init__(self, engine: VerifierEngine) -> None:
        self._engine = engine

    def nats(self, text: Sequence[int]) -> float:
        """Return the mean -log p of a text's tokens but the first: the log of Eq. 21."""
        engine, tokens = self._engine, tuple(text)
        request = VerifyOpen(
            "judge", tokens, SamplingParams(), 1, 0, logprobs=0, prompt_logprobs=True
        )
        handle = engine.open(request)
        verdict = decide(engine, handle, "judge", tokens)
        engine.close(handle)
        logprobs = [each.logprob for each in verdict.prompt_logprobs]
        return -sum(logprobs) / len(logprobs)


def entropy(text: Sequence[int]) -> float:
    """Return the entropy of a text's tokens in nats (Eq. 22)."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log(n / len(text)) for n in counts.values())
