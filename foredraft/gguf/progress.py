"""The progress of a conversion."""

from __future__ import annotations

from collections.abc import Callable

# Called with how many values were written and how many there are.
Progress = Callable[[int, int], None]
