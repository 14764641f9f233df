"""A load that rises and falls: phases of equally spaced, jittered arrivals. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple


class Phase(NamedTuple):
    """So many requests a second, for so many seconds."""

    rate: float
    seconds: float


class Arrival(NamedTuple):
    """One request: when it comes, in seconds from the start, which text, and how it is sampled."""

    at_s: float
    text: int
    max_tokens: int
    temperature: float
    seed: int


# One request at once, some, many, one, none: some are enough for a second drafter, not for a second
# verifier.
RAMP = (Phase(0.15, 20), Phase(0.7, 30), Phase(1.6, 25), Phase(0.15, 40))


def arrivals(
    phases: Sequence[Phase], texts: int, max_tokens: int, temperature: float, seed: int
) -> list[Arrival]:
    """Return the requests of all phases in order; each is moved by up to 0.4 of the spacing.

    Texts and seeds come round: what one request answers, another of its kind has to answer too.
    """
    noise = random.Random(seed)
    found: list[Arrival] = []
    began = 0.0
    for rate, seconds in phases:
        for index in range(int(rate * seconds)):
            at = began + (index + 0.5 + noise.uniform(-0.4, 0.4)) / rate
            text = len(found) % texts
            found.append(Arrival(at, text, max_tokens, temperature, text))
        began += seconds
    return found
