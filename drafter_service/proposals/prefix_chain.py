"""A session's token context with the hash of each of its prefixes."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.decoding.prefix import EMPTY_PREFIX_HASH, extend_hash, extend_hashes


class PrefixChain:
    """Tokens and, for every n, the chained hash of the first n: cutting back costs nothing."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._hashes: list[int] = [EMPTY_PREFIX_HASH]

    def __len__(self) -> int:
        return len(self.tokens)

    def hash_after(self, keep_len: int, append: Sequence[int]) -> int:
        """Return the hash that the context would have after assign(keep_len, append)."""
        return extend_hash(self._hashes[keep_len], append)

    def assign(self, keep_len: int, append: Sequence[int]) -> int:
        """Make the context its first keep_len tokens + append; return how many tokens stayed.

        The tokens that stayed are the longest common prefix of the old and the new context, which
        may be longer than keep_len. keep_len must not exceed the length.
        """
        same = keep_len
        for token in append:
            if same == len(self.tokens) or self.tokens[same] != token:
                break
            same += 1
        del self.tokens[same:]
        del self._hashes[same + 1 :]
        fresh = append[same - keep_len :]
        self.tokens += fresh
        self._hashes += extend_hashes(self._hashes[-1], fresh)
        return same


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the longest common prefix, by comparing slices: that is compiled."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
