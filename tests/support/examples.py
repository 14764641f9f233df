"""How many examples a property is tried on: fewer where the loop is to be fast."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

# Set by `make test-fast`.
_FAST = "FOREDRAFT_TEST_FAST" in os.environ


def examples(count: int, **others: Any) -> settings:
    """Return settings for so many examples, an eighth of them in the fast loop."""
    return settings(max_examples=count // 8 if _FAST else count, **others)
