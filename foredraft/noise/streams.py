"""Random numbers as functions of integers: the seeds and keys that all noise is made from.

A counter-based hash (splitmix64's finaliser) instead of a generator's state, so that any process
gets the same numbers for the same arguments. Standard library only; noise.py does it in bulk.
"""

from __future__ import annotations

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
HASH_BITS = 52
_MASK = (1 << 64) - 1

# Purposes of `substream`.
DRAFT, ACCEPT, RESIDUAL, DENOISE = 1, 2, 3, 4


def signed(x: int) -> int:
    """Return the two's complement value of the low 64 bits of x."""
    x &= _MASK
    return x - (1 << 64) if x >> 63 else x


def mix(x: int) -> int:
    """Return splitmix64's finaliser of an unsigned 64-bit integer."""
    x = ((x ^ (x >> 30)) * MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * MIX_2) & _MASK
    return x ^ (x >> 31)


def stream_key(seed: int, position: int) -> int:
    """Return the 64-bit signed key of one position's noise; seed is any 64-bit integer."""
    return signed(mix(mix((seed + GOLDEN) & _MASK) ^ ((position * GOLDEN) & _MASK)))


def substream(seed: int, purpose: int, prefix_len: int) -> int:
    """Return the seed of a stream that is independent of g(seed, ...) and of every other purpose.

    The rules that do not share noise draw from these: one for each use, fresh for each prefix.
    """
    mixed = mix((seed ^ (purpose * MIX_1)) & _MASK)
    return mix((mixed + (prefix_len + 1) * GOLDEN) & _MASK)


def uniform(seed: int, position: int) -> float:
    """Return a number in (0, 1), a function of seed and position."""
    return (mix(stream_key(seed, position) & _MASK) >> (64 - HASH_BITS)) * 2.0**-52 + 2.0**-53
