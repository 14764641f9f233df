"""Acceptance, KV accounting, step planning, busy time: exact values and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.rpc.busy import BusyMeter
from verifier_service.rules.acceptance import keep_while_equal
from verifier_service.schedule.batching import PendingRows, ScheduledRows, schedule


@pytest.mark.parametrize(
    ("draft", "chosen", "expected"),
    [
        ((), (7,), ((), 7)),
        ((1, 2), (1, 2, 3), ((0, 1), 3)),
        ((1, 2), (1, 5, 3), ((0,), 5)),
        ((1, 2), (4, 2, 3), ((), 4)),
    ],
)
def test_a_path_is_kept_while_equal(draft, chosen, expected):
    assert keep_while_equal(draft, chosen) == expected
    assert keep_while_equal(draft, chosen, range(-1, len(draft) - 1)) == expected


# Node 0 and 1 are the root's children, 2 and 3 those of 1, 4 hangs from 0 and 5 from 3.
PARENTS = (-1, -1, 1, 1, 0, 3)


@pytest.mark.parametrize(
    ("draft", "chosen", "expected"),
    [
        ((1, 2, 3, 4, 5, 6), (2, 0, 4, 0, 6, 0, 9), ((1, 3, 5), 9)),
        ((1, 2, 3, 4, 5, 6), (2, 0, 4, 0, 7, 0, 9), ((1, 3), 7)),
        ((1, 2, 3, 4, 5, 6), (1, 5, 0, 0, 0, 8, 0), ((0, 4), 8)),
        ((1, 2, 3, 4, 5, 6), (2, 0, 5, 0, 0, 0, 0), ((1,), 5)),
        ((1, 2, 3, 4, 5, 6), (7, 0, 0, 0, 0, 0, 0), ((), 7)),
        # Of equal siblings the first is gone to, whatever hangs from the other.
        ((1, 1, 3, 3, 5, 6), (1, 3, 3, 0, 0, 0, 0), ((0,), 3)),
        ((1, 2, 3, 3, 5, 6), (2, 0, 3, 6, 0, 0, 0), ((1, 2), 6)),
    ],
)
def test_a_branch_is_kept_while_equal(draft, chosen, expected):
    assert keep_while_equal(draft, chosen, PARENTS) == expected


def test_a_choice_is_needed_for_every_row():
    with pytest.raises(ValueError, match="one entry more"):
        keep_while_equal((1, 2), (1, 2))


WORK = st.lists(
    st.builds(PendingRows, st.just(0), st.integers(0, 400), st.integers(0, 30)), max_size=12
).map(lambda items: [item._replace(key=i) for i, item in enumerate(items)])


@given(WORK, st.integers(31, 300), st.integers(1, 64))
def test_a_plan_fits_and_moves(work, row_budget, prefill_rows):
    prefill_rows = min(prefill_rows, row_budget)
    shares = schedule(work, row_budget=row_budget, prefill_rows=prefill_rows)
    by_key = {item.key: item for item in work}
    assert len({share.key for share in shares}) == len(shares)
    assert sum(share.rows for share in shares) <= max(row_budget, 30 + prefill_rows)
    for share in shares:
        item = by_key[share.key]
        assert share.rows > 0
        assert share.rows == item.prefill + item.decide if share.decides else True
        assert share.decides or share.rows <= item.prefill
    if any(item.prefill or item.decide for item in work):
        assert shares
    if any(item.prefill for item in work):
        assert any(by_key[share.key].prefill for share in shares)
    if any(item.decide and not item.prefill for item in work):
        assert any(share.decides for share in shares)


def test_rounds_go_first_and_prefill_takes_the_rest():
    work = [
        PendingRows(1, 500, 5),
        PendingRows(2, 0, 17),
        PendingRows(3, 0, 1),
        PendingRows(4, 10, 3),
        PendingRows(5, 0, 0),
    ]
    assert schedule(work, row_budget=128, prefill_rows=64) == [
        ScheduledRows(2, 17, True),
        ScheduledRows(3, 1, True),
        ScheduledRows(1, 110, False),
    ]
    assert schedule([PendingRows(4, 10, 3)], row_budget=128, prefill_rows=64) == [
        ScheduledRows(4, 13, True)
    ]


def test_a_round_beyond_the_budget_goes_alone():
    work = [PendingRows(1, 0, 50), PendingRows(2, 0, 50)]
    assert schedule(work, row_budget=40, prefill_rows=8) == [ScheduledRows(1, 50, True)]


def test_busy_is_a_share_of_the_last_seconds():
    meter = BusyMeter(window_s=4)
    assert meter.fraction(100.0) == 0
    for second in range(100, 110):
        meter.add(second + 0.25, second + 0.75)
    assert meter.fraction(110.0) == pytest.approx(0.5)
    assert meter.fraction(200.0) == 0
    assert meter.total_s == pytest.approx(5)
