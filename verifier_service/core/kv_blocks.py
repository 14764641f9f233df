"""Admission: KV is reserved for a session's worst case before anything is allocated.

So a session that was admitted never runs out, and memory is bounded by what was configured.
"""

from __future__ import annotations

from foredraft.errors import InvalidRequest, Overloaded


class KvBlocks:
    """Counts KV blocks held by sessions; a key is whatever names a session."""

    def __init__(self, *, kv_tokens: int, block_tokens: int, max_sessions: int) -> None:
        self._block_tokens = block_tokens
        self._total = kv_tokens // block_tokens
        self._max_sessions = max_sessions
        self._held: dict[int, int] = {}
        self._used = 0

    @property
    def used_tokens(self) -> int:
        """Tokens in blocks that are held."""
        return self._used * self._block_tokens

    @property
    def total_tokens(self) -> int:
        """Tokens in all blocks."""
        return self._total * self._block_tokens

    @property
    def sessions(self) -> int:
        """Number of reservations held."""
        return len(self._held)

    def reserve(self, key: int, tokens: int) -> int:
        """Reserve blocks for tokens and return the tokens that fit into them.

        Raise InvalidRequest if they could never fit, Overloaded if they do not fit now.
        """
        if key in self._held:
            raise ValueError(f"key {key} holds a reservation")
        blocks = -(-tokens // self._block_tokens)
        if blocks > self._total:
            raise InvalidRequest(
                f"prefix + max_new_tokens + max_draft need {tokens} tokens of KV cache; "
                f"this verifier has {self.total_tokens}",
                param="max_new_tokens",
            )
        if blocks > self._total - self._used or len(self._held) >= self._max_sessions:
            raise Overloaded("the verifier's KV cache is fully reserved")
        self._held[key] = blocks
        self._used += blocks
        return blocks * self._block_tokens

    def release(self, key: int) -> None:
        """Give a reservation back; a key that holds none is ignored."""
        self._used -= self._held.pop(key, 0)
