"""A request of a trace: when it comes, and how long its prompt and its output are."""

from __future__ import annotations

from typing import NamedTuple


class Arrival(NamedTuple):
    """One request; time_s is in seconds since the trace's start, lengths are in tokens, >= 1."""

    time_s: float
    prompt_tokens: int
    output_tokens: int
