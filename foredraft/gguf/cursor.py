"""A position in the bytes of a file that may be truncated or lie about its sizes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from foredraft.errors import WeightsError

_FORMATS: dict[str, struct.Struct] = {
    code: struct.Struct(f"<{code}") for code in ("B", "b", "H", "h", "I", "i", "f", "Q", "q", "d")
}


class Cursor:
    """Reads little-endian values one after the other, never past the end of the bytes."""

    def __init__(self, data: np.ndarray) -> None:
        """Start at the first of the bytes (uint8, any length)."""
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        """How many bytes follow."""
        return len(self._data) - self.at

    def take(self, size: int, what: str) -> np.ndarray:
        """Return the next `size` bytes; raise WeightsError naming `what` if there are less."""
        if size > self.left:
            raise WeightsError(
                f"the GGUF file is truncated: {what} needs {size} bytes, and {self.left} are left"
            )
        found = self._data[self.at : self.at + size]
        self.at += size
        return found

    def number(self, code: str, what: str) -> Any:
        """Return the next number, whose format is a letter of the module struct."""
        form = _FORMATS[code]
        return form.unpack(self.take(form.size, what).tobytes())[0]

    def text(self, what: str, longest: int | None = None) -> str:
        """Return the next string of at most `longest` bytes; raise WeightsError if it is none."""
        size = self.number("Q", what)
        if longest is not None and size > longest:
            raise WeightsError(f"{what} has {size} bytes; at most {longest} are allowed")
        try:
            return self.take(size, what).tobytes().decode()
        except UnicodeDecodeError:
            raise WeightsError(f"{what} is not UTF-8") from None
