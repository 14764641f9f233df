"""Whose request it is: known at the door, used where its sessions are opened."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar

# The name of the key that let the request under way in, "" without keys.
KEY_NAME: ContextVar[str] = ContextVar("key_name", default="")


def salt_of(key: str, salt: str) -> str:
    """Return the salt of a key's requests that name a salt: no two keys share KV.

    "" where there is neither: such requests share the KV of what they have in common.
    """
    return _digest(f"{key}\0{salt}") if key else salt


def group_of(key: str, salt: str) -> str | None:
    """Return whom a request's sessions count for beside the request: its key, else its salt."""
    if key:
        return "key-" + _digest(key)
    return "salt-" + _digest(salt) if salt else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
