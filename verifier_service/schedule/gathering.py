"""Whether a pass waits for rounds that are about to come. Pure.

A session's round leaves the verifier with its verdict and its next one comes back a moment later.
Where a pass costs about as much for many rows as for few, one that begins with the first round to
come leaves all others to a pass of their own. So a pass waits as long as its expected tokens for
each second of waiting and computing rise, and never longer than it takes itself; where each row
costs the same, not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

# How fast a session's figures are followed.
_SHARE = 0.2
# Of the usual time away: no return is expected sooner.
_LEAST = 0.05


class Coming(NamedTuple):
    """A round that is expected in so many seconds, with its usual rows and tokens."""

    in_s: float
    rows: float
    tokens: float


def best_wait_s(
    rows: float, tokens: float, coming: Iterable[Coming], pass_s: Callable[[float], float]
) -> float:
    """Return the seconds after which a pass has the most tokens per second, 0 for now.

    It has rows and tokens now; pass_s(rows) are the seconds that it takes.
    """
    wait_s, best = 0.0, tokens / max(pass_s(rows), 1e-9)
    for each in sorted(coming):
        rows, tokens = rows + each.rows, tokens + each.tokens
        rate = tokens / max(each.in_s + pass_s(rows), 1e-9)
        if rate > best:
            wait_s, best = each.in_s, rate
    return wait_s


@dataclass(slots=True)
class _Habit:
    """How a session comes and goes; times in seconds, left_at None while a round is here."""

    away_s: float | None = None
    left_at: float | None = None
    rows: float = 1.0
    tokens: float = 1.0


class Gathering:
    """Follows one engine's sessions, by their handles; times are of one clock."""

    def __init__(self) -> None:
        self._habits: dict[int, _Habit] = {}
        # When the pass that is waited with could have begun.
        self._since: float | None = None

    def came(self, key: int, now: float) -> None:
        """Take note of a session's round."""
        habit = self._habits.setdefault(key, _Habit())
        if habit.left_at is not None:
            away_s = now - habit.left_at
            before = away_s if habit.away_s is None else habit.away_s
            habit.away_s = before + _SHARE * (away_s - before)
        habit.left_at = None

    def left(self, key: int, now: float, rows: int, tokens: int) -> None:
        """Take note of a round that was decided, in so many rows, and committed tokens."""
        habit = self._habits.get(key)
        if habit is not None:
            habit.left_at = now
            habit.rows += _SHARE * (rows - habit.rows)
            habit.tokens += _SHARE * (tokens - habit.tokens)

    def closed(self, key: int) -> None:
        """Forget a session."""
        self._habits.pop(key, None)

    def began(self) -> None:
        """Take note that a pass waits no longer."""
        self._since = None

    def wait_s(
        self, present: Collection[int], now: float, pass_s: Callable[[float], float]
    ) -> float:
        """Return how long a pass over the present sessions' rounds should still wait for others."""
        self._since = now if self._since is None else self._since
        # A session that still reads its prompt counts as a round.
        here = [self._habits.get(key, _Habit()) for key in present]
        coming = [
            Coming(in_s, habit.rows, habit.tokens)
            for key, habit in self._habits.items()
            if key not in present and (in_s := _expected_in(habit, now)) is not None
        ]
        if not coming:
            return 0.0
        rows, tokens = sum(habit.rows for habit in here), sum(habit.tokens for habit in here)
        left_s = pass_s(rows) - (now - self._since)
        return max(0.0, min(left_s, best_wait_s(rows, tokens, coming, pass_s)))


def _expected_in(habit: _Habit, now: float) -> float | None:
    """Return when a session is expected back, None if nothing is known.

    The longer it is overdue, the longer it is expected to take.
    """
    if habit.left_at is None or habit.away_s is None:
        return None
    return max(abs(habit.away_s - (now - habit.left_at)), _LEAST * habit.away_s)
