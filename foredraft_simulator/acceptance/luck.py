"""Random numbers by name: a draw depends on what it is for, not on how many were drawn before.

So another policy, or another draft length, meets the same texts and the same luck.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist

_MASK = (1 << 64) - 1
_NORMAL = NormalDist()


def mixed(seed: int, *names: int) -> int:
    """Return 64 bits that depend on the seed and all names (splitmix64's finaliser)."""
    h = seed & _MASK
    for name in names:
        h = (h + 0x9E3779B97F4A7C15 + (name & _MASK)) & _MASK
        h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & _MASK
        h ^= h >> 31
    return h


def uniform(seed: int, *names: int) -> float:
    """Return a number in (0, 1)."""
    return ((mixed(seed, *names) >> 12) + 0.5) / (1 << 52)


def uniforms(seed: int, *names: int) -> Iterator[float]:
    """Yield numbers in [0, 1) without end: Knuth's linear congruential generator, its top bits."""
    state = mixed(seed, *names)
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) & _MASK
        yield (state >> 11) / (1 << 53)


def normal(seed: int, *names: int) -> float:
    """Return a draw from the standard normal distribution."""
    return _NORMAL.inv_cdf(uniform(seed, *names))
