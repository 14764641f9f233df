"""Continuous batching: which rows of which sessions share the next forward.

Rounds are small and each has a waiting client, so they go first; while prefills wait, a part of
the budget is theirs, so neither kind starves the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class PendingRows(NamedTuple):
    """A session's possible rows: prefix rows without KV, then its round's rows (0: none)."""

    key: int
    prefill: int
    decide: int


class ScheduledRows(NamedTuple):
    """A session's rows in this forward pass; decides: its round is among them."""

    key: int
    rows: int
    decides: bool


def schedule(
    work: Sequence[PendingRows], *, row_budget: int, prefill_rows: int
) -> list[ScheduledRows]:
    """Return each session's rows in a forward pass of at most row_budget rows.

    work is in the order in which sessions should be served; prefill_rows of the budget are kept for
    prefills while there are any. A round is never split: one that alone exceeds its part of the
    budget goes through when no other round does.
    """
    reserved = min(prefill_rows, sum(item.prefill for item in work))
    left = row_budget - reserved
    shares: list[ScheduledRows] = []
    for item in work:
        if not item.prefill and item.decide and (item.decide <= left or not shares):
            shares.append(ScheduledRows(item.key, item.decide, True))
            left -= item.decide
    left += reserved
    for item in work:
        if not item.prefill or left <= 0:
            continue
        decides = 0 < item.decide <= left - item.prefill
        rows = item.prefill + item.decide if decides else min(item.prefill, left)
        shares.append(ScheduledRows(item.key, rows, decides))
        left -= rows
    return shares
