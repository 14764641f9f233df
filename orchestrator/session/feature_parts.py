"""A session's features, in the parts in which they came. Pure."""

from __future__ import annotations

from foredraft.tensors.parts import length
from foredraft.types import Part, Stored


class FeatureParts:
    """Bytes, and references to bytes that are stored elsewhere, in the text's order."""

    def __init__(self) -> None:
        self._parts: list[bytearray | Stored] = []

    @property
    def stored(self) -> bool:
        """Whether some are stored elsewhere."""
        return any(isinstance(part, Stored) for part in self._parts)

    def add(self, *parts: Part) -> None:
        """Take the next parts."""
        for part in parts:
            if isinstance(part, Stored):
                self._parts.append(part)
            elif self._parts and isinstance(last := self._parts[-1], bytearray):
                last += part
            elif part:
                self._parts.append(bytearray(part))

    def between(self, start: int, end: int) -> tuple[Part, ...]:
        """Return the parts of bytes [start, end), which must hold stored ones whole.

        Verdicts are sent on whole, and each of them stores all of its features or none.
        """
        found: list[Part] = []
        at = 0
        for part in self._parts:
            size = part.size if isinstance(part, Stored) else len(part)
            low, high = max(start - at, 0), min(end - at, size)
            at += size
            if low >= high:
                continue
            if isinstance(part, Stored):
                assert (low, high) == (0, size)
                found.append(part)
            else:
                found.append(bytes(part[low:high]))
        assert length(found) == max(0, end - start)
        return tuple(found)

    def clear(self) -> None:
        """Drop all parts."""
        self._parts.clear()
