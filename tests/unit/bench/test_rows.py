"""The bench's rows: one statistic, the ratio to plain decoding, with its interval."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from bench.compare.rows import Run, Setting, as_json, as_markdown, median_interval, row


@pytest.mark.parametrize(
    ("count", "cut"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (48, 16)]
)
def test_the_interval_has_the_ranks_of_the_sign_test(count: int, cut: int) -> None:
    values = list(range(count))[::-1]
    assert median_interval([float(v) for v in values]) == (cut, count - 1 - cut)
    covered = 1 - 2 * sum(comb(count, i) for i in range(cut + 1)) / 2**count
    assert covered >= 0.95 or cut == 0


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    draws = rng.exponential(size=(4000, 12))
    bounds = np.array([median_interval(list(map(float, one))) for one in draws])
    share = np.mean((bounds[:, 0] <= np.log(2)) & (np.log(2) <= bounds[:, 1]))
    assert 0.95 <= share <= 0.975


def test_a_row_gives_the_ratio_and_the_baselines_speed() -> None:
    plain = [Run((1, 2), 2.0), Run((1, 2), 1.0), Run((3, 4), 1.0)]
    fast = [Run((1, 2), 1.0, 3, 4, 2), Run((1, 2), 1.0, 1, 4, 2), Run((3, 5), 0.25, 2, 4, 2)]
    setting = Setting("embedded", "held_out", "process", 0.0, 2)
    one = row(setting, "tree", fast, plain)
    assert (one.speedup, one.low, one.high) == (2.0, 1.0, 4.0)
    assert one.identical == pytest.approx(2 / 3)
    text = as_markdown([row(setting, "plain", plain, plain), one])
    assert "| 1 (2 tokens/s) |" in text
    assert "| 2.00x (1.00 to 4.00) | 1.00 | 50% | 67% |" in text
    keys = {"pair", "prompts", "where", "drafter", "temperature", "speedup", "low", "high"}
    assert keys | {"mat", "identical", "repetition"} <= as_json([one])[0].keys()
