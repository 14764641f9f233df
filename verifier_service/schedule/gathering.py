"""Whether a pass waits for rounds that are about to come. Pure.

A session's round leaves the verifier with its verdict and its next one comes back a moment later.
Where a pass costs about as much for many rows as for few, one that begins with the first round to
come leaves all others to a pass of their own. So a pass waits as long as its expected tokens for
each second of waiting and computing rise, and never longer than it takes itself; where each row
costs the same, not at all.

A session's first round comes a moment after its prompt. In the pass that reads the prompt's end the
round costs one more row; if it comes later, a pass of its own: so it is waited for, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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
    """How a session comes and goes; times in seconds, left_at None while a round is here.

    opened is true until the first round comes, which is expected as soon as other sessions' were.
    """

    away_s: float | None = None
    left_at: float | None = None
    opened: bool = False
    rows: float = 1.0
    tokens: float = 1.0


class Gathering:
    """Follows one engine's sessions, by their handles; times are of one clock."""

    def __init__(self) -> None:
        self._habits: dict[int, _Habit] = {}
        # From a session's opening to its first round, None until one is known.
        self._first_s: float | None = None
        # When the pass that is waited with could have begun.
        self._since: float | None = None

    def opened(self, key: int, now: float) -> None:
        """Take note of a session that opens."""
        self._habits[key] = _Habit(self._first_s, now, opened=True)

    def came(self, key: int, now: float) -> None:
        """Take note of a session's round."""
        habit = self._habits.setdefault(key, _Habit())
        if habit.left_at is not None:
            away_s = now - habit.left_at
            before = away_s if habit.away_s is None else habit.away_s
            habit.away_s = before + _SHARE * (away_s - before)
            if habit.opened:
                # What is usual between the session's rounds is not known yet.
                self._first_s, habit.away_s = habit.away_s, None
        habit.left_at, habit.opened = None, False

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
        self,
        present: Collection[int],
        prompts: Mapping[int, int],
        now: float,
        pass_s: Callable[[float], float],
    ) -> float:
        """Return how long a pass over the present sessions' rounds should still wait for others.

        prompts are the rows of the present sessions that the pass would read to the end of their
        prompts while their first round is missing.
        """
        self._since = now if self._since is None else self._since
        # Other sessions that still read their prompt count as a round.
        here = [self._habits.get(key, _Habit()) for key in present if key not in prompts]
        rows = sum(habit.rows for habit in here) + sum(prompts.values())
        # A token that takes a pass after this one is a part of one here.
        part = pass_s(rows) / max(pass_s(rows) + pass_s(1), 1e-9)
        tokens = sum(habit.tokens for habit in here) + part * len(prompts)
        coming = [
            Coming(in_s, habit.rows, 1 - part if key in prompts else habit.tokens)
            for key, habit in self._habits.items()
            if (key in prompts or key not in present)
            and (in_s := _expected_in(habit, now)) is not None
        ]
        if not coming:
            return 0.0
        left_s = pass_s(rows) - (now - self._since)
        return max(0.0, min(left_s, best_wait_s(rows, tokens, coming, pass_s)))


def _expected_in(habit: _Habit, now: float) -> float | None:
    """Return when a session is expected back, None if nothing is known.

    The longer it is overdue, the longer it is expected to take.
    """
    if habit.left_at is None or habit.away_s is None:
        return None
    return max(abs(habit.away_s - (now - habit.left_at)), _LEAST * habit.away_s)
