"""A small any-subset model as a table, its exact law, and every path that a decoding can take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, product

import numpy as np

from bench.assd.algorithm_1 import law
from bench.assd.port import Decoded, Query
from foredraft.layout import Layout
from foredraft.noise.streams import mix
from foredraft.types import SamplingParams

VOCAB, LENGTH = 3, 4


def layouts(length: int = LENGTH) -> list[Layout]:
    """Every layout of so many tokens."""
    chosen = (combinations(range(length), m) for m in range(1, length))
    return [Layout(length, given) for each in chosen for given in each]


@cache
def row(known: tuple[tuple[int, int], ...], asked: int) -> np.ndarray:
    """Logits [VOCAB] of the token at a position, given (position, token) pairs."""
    seed = 0
    for number in (asked, *(part for pair in known for part in pair)):
        seed = mix(seed ^ (number + 1))
    return (1.5 * np.random.default_rng(seed).standard_normal(VOCAB)).astype(np.float32)


class TabularAnySubset:
    """Conditionals that are unrelated for every set of known tokens; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def logits(
        self, layout: Layout, content: Sequence[int], queries: Sequence[Query]
    ) -> np.ndarray:
        self.calls += 1
        rows = []
        for order, seen in queries:
            assert len(layout.given) <= seen <= min(order, len(content))
            known = sorted(zip(layout.positions, content[:seen], strict=False))
            rows.append(row(tuple(known), layout.positions[order]))
        return np.array(rows, dtype=np.float32).reshape(-1, VOCAB)


def exact_law(
    layout: Layout, prompt: Sequence[int], sampling: SamplingParams
) -> dict[tuple[int, ...], float]:
    """The probability of each text that may follow the prompt, by the chain rule (Eq. 2)."""
    model, found = TabularAnySubset(), {}
    for text in product(range(VOCAB), repeat=layout.length - len(prompt)):
        odds = 1.0
        for i, token in enumerate(text):
            content = [*prompt, *text[:i]]
            query = Query(len(content), len(content))
            odds *= law(model.logits(layout, content, [query]), sampling)[0, token]
        found[text] = odds
    return found


class Path:
    """Chances decided beforehand, as far as they are, then the first that may be."""

    def __init__(self, decided: Sequence[int]) -> None:
        self.decided = list(decided)
        self.options: list[list[tuple[int, float]]] = []

    @property
    def taken(self) -> list[int]:
        """Which option was taken at each decision."""
        return [*self.decided, *([0] * (len(self.options) - len(self.decided)))]

    @property
    def odds(self) -> float:
        """The probability of all that was taken."""
        pairs = zip(self.options, self.taken, strict=True)
        return float(np.prod([options[at][1] for options, at in pairs]))

    def _take(self, options: list[tuple[int, float]]) -> int:
        self.options.append([each for each in options if each[1] > 0])
        return self.options[-1][self.taken[len(self.options) - 1]][0]

    def token(self, purpose: int, n: int, order: int, weights: np.ndarray) -> int:
        return self._take(list(enumerate((weights / weights.sum()).tolist())))

    def passes(self, n: int, order: int, odds: float) -> bool:
        return bool(self._take([(1, odds), (0, 1 - odds)]))


def enumerated(decode: Callable[[Path], Decoded]) -> dict[tuple[int, ...], float]:
    """The probability of each text that a decoding gives, over all that chance can do."""
    found: dict[tuple[int, ...], float] = {}
    left: list[list[int]] = [[]]
    while left:
        decided = left.pop()
        path = Path(decided)
        tokens = decode(path).tokens
        found[tokens] = found.get(tokens, 0.0) + path.odds
        taken = path.taken
        for at in range(len(decided), len(taken)):
            left += [[*taken[:at], other] for other in range(1, len(path.options[at]))]
    return found
