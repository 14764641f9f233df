"""How much a text repeats itself: a weak target loops, and loops inflate acceptance figures."""

from __future__ import annotations

from collections.abc import Sequence

# Tokens of what is looked for again.
GRAM = 4


def repetition(tokens: Sequence[int]) -> float:
    """Return the share of the 4-grams of a continuation that occurred in it before, 0 to 1."""
    grams = [tuple(tokens[i : i + GRAM]) for i in range(len(tokens) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
