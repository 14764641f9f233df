"""Continuous batching: which blocks and states of which sessions share the next call. Pure.

Every session's current state goes before anybody's drafts: a draft that finds no room costs a later
call, never another text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class Wanted(NamedTuple):
    """Rows of a session's committed blocks that have no KV, and those of the states to evaluate.

    The states are the current one and drafts, in order; none: no call is asked for.
    """

    key: int
    unread: int
    states: Sequence[int]


class Granted(NamedTuple):
    """Rows to read of a session's committed blocks, and how many states to evaluate after them."""

    key: int
    read: int
    states: int


def schedule(
    wanted: Sequence[Wanted], *, block_length: int, row_budget: int, prefill_rows: int
) -> list[Granted]:
    """Return each session's part of a call of at most row_budget rows.

    wanted is in the order in which sessions should be served; prefill_rows of the budget are kept
    for prompts while there are any. What alone exceeds the budget goes through as the only one.
    """
    steps = [each for each in wanted if each.states and each.unread <= block_length]
    prompts = [each for each in wanted if each.unread > block_length or not each.states]
    reserved = min(prefill_rows, sum(each.unread for each in prompts))
    left = row_budget - reserved
    granted: list[Granted] = []
    for each in steps:
        rows = each.unread + each.states[0]
        if rows <= left or not granted:
            granted.append(Granted(each.key, each.unread, 1))
            left -= rows
    left += reserved
    for each in prompts:
        blocks = max(left // block_length, 0 if granted else 1)
        rows = min(each.unread, blocks * block_length)
        if rows:
            granted.append(Granted(each.key, rows, 0))
            left -= rows
    drafts = {each.key: each.states[1:] for each in wanted}
    for at, grant in enumerate(granted):
        ends = list(accumulate(drafts[grant.key] if grant.states else (), initial=0))
        count = sum(end <= left for end in ends[1:])
        granted[at] = grant._replace(states=grant.states + count)
        left -= ends[count]
    return granted
