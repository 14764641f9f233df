"""Fused features: what the target's hidden states tell a drafter of each token, as they travel.

A drafter's fusion (fusion.py) makes `width` values of a token's hidden states; they travel as
bfloat16, little-endian, one token after the other. Standard library only: who relays features need
not compute with them.
"""

from __future__ import annotations

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


def check_size(got: int, tokens: int, width: int) -> None:
    """Raise InvalidRequest naming features unless so many bytes are those of so many tokens."""
    due = size(tokens, width)
    if got != due:
        raise InvalidRequest(
            f"features of {tokens} tokens must have {due} bytes, got {got}", param="features"
        )


def check(data: bytes, tokens: int, width: int) -> None:
    """Raise InvalidRequest naming features unless they are those of so many tokens, and finite."""
    check_size(len(data), tokens, width)
    if not is_finite(data):
        raise InvalidRequest("features are not finite", param="features")
