"""References that only holders of a key can have made: what they hold, behind a keyed digest.

Whoever can send messages could otherwise name any object, or have a reader connect to any owner of
one. Nothing of a reference is looked at before its digest was compared.
"""

from __future__ import annotations

import hashlib
import hmac

from foredraft import limits
from foredraft.errors import TensorLost

KEY_BYTES = 32
_DIGEST_BYTES = hashlib.sha256().digest_size


def seal(key: bytes, content: bytes) -> bytes:
    """Return a reference with this content."""
    reference = _digest(key, content) + content
    assert len(reference) <= limits.MAX_REFERENCE
    return reference


def unseal(key: bytes, reference: bytes) -> bytes:
    """Return a reference's content; raise TensorLost unless it was sealed with this key."""
    digest, content = reference[:_DIGEST_BYTES], reference[_DIGEST_BYTES:]
    if len(reference) > limits.MAX_REFERENCE or not hmac.compare_digest(
        digest, _digest(key, content)
    ):
        raise TensorLost("a tensor's reference is not from this cluster")
    return content


def store_name(key: bytes, node: str) -> str:
    """Return the name of the store that holders of a key share, as read from a node.

    The name reveals nothing of the key.
    """
    name = _digest(key, b"store").hex()[:16]
    return f"{name}/{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()
