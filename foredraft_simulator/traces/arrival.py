"""A request of a trace: when it comes, and how long its prompt and its output are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Arrival(NamedTuple):
    """One request; time_s is in seconds since the trace's start, lengths are in tokens, >= 1."""

    time_s: float
    prompt_tokens: int
    output_tokens: int


class Trace(NamedTuple):
    """Requests in the order of their times, and how many of the source's had failed."""

    arrivals: tuple[Arrival, ...]
    source: str
    failed: int = 0

    @property
    def duration_s(self) -> float:
        """Time of the last request."""
        return self.arrivals[-1].time_s if self.arrivals else 0.0


def from_start(arrivals: Iterable[Arrival]) -> tuple[Arrival, ...]:
    """Return the requests in the order of their times, the first of which is 0."""
    ordered = sorted(arrivals, key=lambda each: each.time_s)
    return tuple(each._replace(time_s=each.time_s - ordered[0].time_s) for each in ordered)
