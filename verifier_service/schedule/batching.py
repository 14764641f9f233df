"""Continuous batching: which rows of which sessions share the next forward.

Rounds are small and someone waits for each, so they go first; but while prefills wait, a part of
the budget is theirs, so neither kind can starve the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Work(NamedTuple):
    """What a session could feed: prefix rows without KV yet, then its round's rows (0: none)."""

    key: int
    prefill: int
    decide: int


class Share(NamedTuple):
    """What a session feeds in this forward: rows in all; decides says that its round is in them."""

    key: int
    rows: int
    decides: bool


def plan(work: Sequence[Work], *, row_budget: int, prefill_rows: int) -> list[Share]:
    """Return each session's share of a forward of at most row_budget rows.

    work is in the order in which sessions should be served; prefill_rows of the budget are kept for
    prefills while there are any. A round is never split: one that alone exceeds its part of the
    budget goes through when no other round does.
    """
    reserved = min(prefill_rows, sum(item.prefill for item in work))
    left = row_budget - reserved
    shares: list[Share] = []
    for item in work:
        if not item.prefill and item.decide and (item.decide <= left or not shares):
            shares.append(Share(item.key, item.decide, True))
            left -= item.decide
    left += reserved
    for item in work:
        if not item.prefill or left <= 0:
            continue
        decides = 0 < item.decide <= left - item.prefill
        rows = item.prefill + item.decide if decides else min(item.prefill, left)
        shares.append(Share(item.key, rows, decides))
        left -= rows
    return shares
