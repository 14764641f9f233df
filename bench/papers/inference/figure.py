"""A value with its interval, as tables write it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.papers.inference.bootstrap import Estimate


class Figure(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Estimate, scale: Callable[[float], float] = float) -> Figure:
        """Return an estimate, written in another scale."""
        return cls(scale(found.value), *(scale(end) for end in found.interval))

    def text(self, digits: int = 2) -> str:
        """Return the value, and the interval where there is one."""
        value = f"{self.value:.{digits}f}"
        if self.high == float("inf"):
            return value
        return f"{value} ({self.low:.{digits}f} to {self.high:.{digits}f})"
