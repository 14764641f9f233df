"""Continuous batching: which blocks and states of which sessions share the next call. Pure.

Every session's current state goes before anybody's drafts: a draft that finds no room costs a later
call, never another text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Wanted(NamedTuple):
    """Rows of a session's committed blocks that have no KV, and the most states to evaluate.

    The states are the current one and drafts; 0: no call is asked for.
    """

    key: int
    unread: int
    states: int


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
        rows = each.unread + block_length
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
    most = {each.key: each.states for each in wanted}
    for at, grant in enumerate(granted):
        drafts = min(most[grant.key] - 1, left // block_length) if grant.states and left > 0 else 0
        granted[at] = grant._replace(states=grant.states + drafts)
        left -= drafts * block_length
    return granted
