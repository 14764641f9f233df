"""How much a text repeats itself."""

from __future__ import annotations

import pytest

from foredraft.repetition import repetition


def test_it_is_the_share_of_4_grams_that_stood_before() -> None:
    assert repetition([1, 2, 3, 4] * 3) == pytest.approx(1 - 4 / 9)
    assert repetition(list(range(9))) == repetition([1]) == repetition([]) == 0
