"""Typed access to a GGUF file's metadata; every error names the key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from foredraft.errors import WeightsError


class Metadata:
    """The file's keys and values."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Wrap what the header held."""
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def under(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix."""
        return [key for key in self._values if key.startswith(prefix)]

    def integer(self, key: str, most: int, default: int | None = None, least: int = 1) -> int:
        """Return an integer from least to most; raise WeightsError if it is none, or missing."""
        found = self._get(key, default)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise WeightsError(f"{key} is {_short(found)}; it must be from {least} to {most}")
        return found

    def positive(self, key: str, default: float | None = None) -> float:
        """Return a finite number above 0; raise WeightsError if it is none, or missing."""
        found = self._get(key, default)
        numeric = isinstance(found, int | float) and not isinstance(found, bool)
        if not numeric or not math.isfinite(found) or found <= 0:
            raise WeightsError(f"{key} is {_short(found)}; it must be a number above 0")
        return float(found)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string; raise WeightsError if it is none, or missing."""
        found = self._get(key, default)
        if not isinstance(found, str):
            raise WeightsError(f"{key} is no string")
        return found

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean; raise WeightsError if it is none."""
        found = self._get(key, default)
        if not isinstance(found, bool):
            raise WeightsError(f"{key} is {_short(found)}; it must be a boolean")
        return found

    def strings(self, key: str) -> list[str]:
        """Return a list of strings; raise WeightsError if it is none, or missing."""
        return self._list(key, str)

    def integers(self, key: str) -> list[int]:
        """Return a list of integers; raise WeightsError if it is none, or missing."""
        return self._list(key, int)

    def _list(self, key: str, kind: type) -> list[Any]:
        found = self._get(key, None)
        if not isinstance(found, list) or not all(type(each) is kind for each in found):
            raise WeightsError(f"{key} is no list of type {kind.__name__}")
        return found

    def _get(self, key: str, default: Any) -> Any:
        found = self._values.get(key, default)
        if found is None:
            raise WeightsError(f"the GGUF file has no {key}")
        return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
