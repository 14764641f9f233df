"""Paths whose tokens are accepted with a probability by depth, request and round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, sub

from foredraft_simulator.acceptance.drawn import DrawnDraft
from foredraft_simulator.acceptance.luck import normal, uniform, uniforms

# What a draw is for.
_REQUEST, _ROUND, _NODE, _GUESS = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class ByDepth:
    """rates[d] is the acceptance of a token d tokens after the first, given those before it.

    The last one holds for all that follow. Requests and rounds differ: these are the standard
    deviations of what is added to the rates' log-odds. The drafter's estimates include both.
    """

    rates: tuple[float, ...]
    request_spread: float
    round_spread: float
    guess_rate: float
    seed: int

    def draft(self, request: int, offset: int, nodes: int) -> DrawnDraft:
        """Return a path."""
        rates = self._rates(request, offset, nodes)
        expected = list(accumulate(rates, mul))
        # The path is right up to the first token whose luck is not.
        luck = uniforms(self.seed, _NODE, request, offset)
        right = next((at for at, rate in enumerate(rates) if next(luck) >= rate), nodes)
        bounds = [1.0, *expected, 0.0]
        last = list(map(sub, bounds, bounds[1:]))
        return DrawnDraft([True] * right + [False] * (nodes - right), expected, last, path=True)

    def guessed(self, request: int, offset: int) -> bool:
        """Return whether the guess is right."""
        return uniform(self.seed, _GUESS, request, offset) < self.guess_rate

    def _rates(self, request: int, offset: int, nodes: int) -> list[float]:
        """Return the acceptance of each token of a draft, given those before it."""
        shift = self._shift(request, offset)
        rates = [_shifted(rate, shift) for rate in self.rates[:nodes]]
        return rates + rates[-1:] * (nodes - len(rates))

    def _shift(self, request: int, offset: int) -> float:
        shift = 0.0
        if self.request_spread:
            shift += self.request_spread * normal(self.seed, _REQUEST, request)
        if self.round_spread:
            shift += self.round_spread * normal(self.seed, _ROUND, request, offset)
        return shift


def _shifted(rate: float, shift: float) -> float:
    if shift == 0.0 or rate in (0.0, 1.0):
        return rate
    return 1.0 / (1.0 + (1.0 / rate - 1.0) * math.exp(-shift))
