"""The chained hash that names a token prefix; both sides of every wire compute it."""

from __future__ import annotations

from collections.abc import Iterable

EMPTY_PREFIX_HASH = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def extend_hash(prefix_hash: int, tokens: Iterable[int]) -> int:
    """Return the 64-bit hash of the prefix hashed so far, followed by tokens.

    One multiply-xor-shift round (splitmix64's) for each token, so a prefix of n tokens costs n
    steps once and every later round only its new tokens.
    """
    h = prefix_hash
    for token in tokens:
        h = ((h ^ (token + 1)) * 0xBF58476D1CE4E5B9) & _MASK
        h ^= h >> 29
    return h


def extend_hashes(prefix_hash: int, tokens: Iterable[int]) -> list[int]:
    """Return extend_hash after each of the tokens, at the cost of the last one's."""
    found = []
    h = prefix_hash
    for token in tokens:
        h = ((h ^ (token + 1)) * 0xBF58476D1CE4E5B9) & _MASK
        h ^= h >> 29
        found.append(h)
    return found


def hash_prefix(tokens: Iterable[int]) -> int:
    """Return the 64-bit hash of a whole prefix."""
    return extend_hash(EMPTY_PREFIX_HASH, tokens)
