"""Fused features: what the target's hidden states tell a drafter of each token, as they travel.

A drafter's fusion (fusion.py) makes `width` values of a token's hidden states; they travel as
bfloat16, little-endian, one token after the other. Standard library only: who relays features need
not compute with them.
"""

from __future__ import annotations

from foredraft import limits
from foredraft.errors import InvalidRequest

VALUE_BYTES = 2
# 1 for the bytes that can belong to an infinity or NaN, whose eight bits of exponent are all set:
# seven of them in a value's second byte, the last one at the top of its first.
_HIGH = bytes(byte & 0x7F == 0x7F for byte in range(256))
_LOW = bytes(byte >> 7 for byte in range(256))


def size(tokens: int, width: int) -> int:
    """Return the bytes that the features of so many tokens have."""
    return tokens * width * VALUE_BYTES


def is_finite(data: bytes) -> bool:
    """Return whether no value is infinite or NaN."""
    high = int.from_bytes(data[1::2].translate(_HIGH), "little")
    return not high or not high & int.from_bytes(data[0::2].translate(_LOW), "little")


def check(data: bytes, tokens: int, width: int) -> None:
    """Raise InvalidRequest naming features unless they are those of so many tokens, and finite."""
    due = size(tokens, width)
    if len(data) != due:
        raise InvalidRequest(
            f"features of {tokens} tokens must have {due} bytes, got {len(data)}", param="features"
        )
    if not is_finite(data):
        raise InvalidRequest("features are not finite", param="features")


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the chunks that go before a message with features, and what it carries itself."""
    step = limits.MAX_FEATURES_CHUNK
    chunks = [data[at : at + step] for at in range(0, len(data) - step, step)]
    return chunks, data[len(chunks) * step :]


class Chunks:
    """Features under way in chunks, put together again; at most `most` bytes of them."""

    def __init__(self, most: int = limits.MAX_FEATURES) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """Take the next chunk; raise InvalidRequest naming features if it is one too many."""
        self._size += len(data)
        if not data or len(data) > limits.MAX_FEATURES_CHUNK or self._size > self._most:
            raise InvalidRequest(
                f"features come in chunks of 1 to {limits.MAX_FEATURES_CHUNK} bytes, "
                f"at most {self._most} in all",
                param="features",
            )
        self._parts.append(data)

    def end(self, data: bytes) -> bytes:
        """Return all chunks and the last part, which the message itself carried."""
        if data:
            self.add(data)
        whole = b"".join(self._parts)
        self._parts, self._size = [], 0
        return whole
