"""How many examples a property is tried on: fewer where the loop is to be fast, more by hand."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

# `make test-fast` sets an eighth; a fuzzing run before a release more than 1.
_TIMES = float(os.environ.get("FOREDRAFT_TEST_EXAMPLES", "1"))


def examples(count: int, **others: Any) -> settings:
    """Return settings for so many examples, times the environment's factor."""
    return settings(max_examples=max(1, int(count * _TIMES)), **others)
