"""How far a figure would move on other prompts of the same kind: modules drawn anew. Pure.

Prompts of one module are alike, so the module is what is drawn. A figure is a function of sums over
prompts, such as accepted tokens over rounds, which makes every draw a product of matrices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""statistic(sums [..., columns]): a figure for each row of sums [...]."""

# Fewer modules decide nothing.
LEAST_UNITS = 10
_DRAWS = 9_999
_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and what it was in each draw of as many modules as there are, sorted."""

    value: float
    draws: Floats
    units: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the figure, unbounded where there are too few modules."""
        if self.units < LEAST_UNITS:
            return -np.inf, np.inf
        low, high = np.percentile(self.draws, _INTERVAL)
        return float(low), float(high)

    def chance_at_most(self, bound: float) -> float:
        """Return the chance of such data were the true figure at most bound: that of draws there.

        It is 1 where there are too few modules.
        """
        return self._chance(int(np.searchsorted(self.draws, bound, side="right")))

    def chance_at_least(self, bound: float) -> float:
        """Return the chance of such data were the true figure at least bound."""
        return self._chance(len(self.draws) - int(np.searchsorted(self.draws, bound, side="left")))

    def _chance(self, there: int) -> float:
        return 1.0 if self.units < LEAST_UNITS else (there + 1) / (len(self.draws) + 1)


def estimate(rows: Iterable[tuple[str, Sequence[float]]], statistic: Statistic) -> Estimate:
    """Return the statistic of the rows' sums, and its spread over modules.

    rows are (module, summands) of each prompt.
    """
    by_module: defaultdict[str, list[Sequence[float]]] = defaultdict(list)
    for module, summands in rows:
        by_module[module].append(summands)
    sums = np.array([np.sum(found, axis=0) for found in by_module.values()], dtype=np.float64)
    value = float(statistic(sums.sum(axis=0)))
    units = len(sums)
    weights, widths = _draws(units)
    draws = statistic(weights @ sums)
    return Estimate(value, np.sort(value + widths * (draws - value)), units)


@cache
def _draws(units: int) -> tuple[Floats, Floats]:
    """Return how often each module is in a draw [draws, units], and how far to widen it [draws].

    Draws of n modules have (n - 1) / n of a mean's variance and the tails of a normal law. Widened
    to all of it, and divided by the root of a chi-square over its n - 1 degrees of freedom, they
    follow Student's t, as the mean of a few modules does.
    """
    random = np.random.default_rng(units)
    weights = random.multinomial(units, np.full(units, 1 / units), size=_DRAWS).astype(np.float64)
    freedom = max(1, units - 1)
    widths = np.sqrt(units / freedom) * np.sqrt(freedom / random.chisquare(freedom, _DRAWS))
    return weights, widths


def quotient(sums: Floats) -> Floats:
    """Return the first sum over the second, 0 over none."""
    found: Floats = sums[..., 0] / np.maximum(sums[..., 1], 1e-12)
    return found


def difference(sums: Floats) -> Floats:
    """Return the quotient of the first two sums less that of the next two."""
    return quotient(sums[..., :2]) - quotient(sums[..., 2:])
