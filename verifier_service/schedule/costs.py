"""What a forward pass costs by its rows, in seconds: measured at start-up and kept true online.

The measured curve is linear between a few numbers of rows. Passes that are observed later move it
by factors: one for all costs, as a machine that others use, too, is slower at times, and one for
each measured number of rows. Passes of sessions that draft are no observations of it: what they
take longer is what drafts cost them, on a machine that drafter and verifier share. Only if they are
much shorter than expected the curve is wrong, as one that was measured beside other work. But a
session that drafts alone has no other passes, and a machine may become slower meanwhile: what its
passes take beyond the curve and the mean cost of drafts moves the common factor a little.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The share of an observation in the moving averages of both kinds of factors.
_SHARE = 0.05
# The same where a session drafts alone: less, so that the mean cost of drafts is found first.
_ALONE_SHARE = 0.01
# A pass that took more times as long as expected was interrupted: that is no cost. But drafts made
# beside one on the same cores do make it that long: it is a cost of theirs.
_MOST, _MOST_BESIDE_DRAFTS = 1.5, 4.0
# One that took less of what was expected shows that this is wrong, drafts beside it or not.
_LEAST = 0.8
# How fast the cost of drafts forgets: about the last 200 drafted rounds count. Before any was seen
# it is none, with the weight of so many rounds.
_DRAFT_FADE = 0.995
_DRAFT_WEIGHT = 4.0


@dataclass(frozen=True, slots=True)
class Pass:
    """A finished pass: its rows, the tokens before them in their sessions, its seconds.

    beside_drafts is true where some of the sessions draft, drafted counts the drafted rounds that
    it decided, sessions those whose rows it had. alone is true where no other session had a pass of
    late.
    """

    rows: int
    context: int
    seconds: float
    beside_drafts: bool = False
    drafted: int = 0
    sessions: int = 1
    alone: bool = False


class PassCosts:
    """The curve through seconds at ascending rows of one session.

    Beside it, context_s for each token before them and session_s for each further session. In lists
    of plain numbers: arrays of so few take longer, and every pass is observed.
    """

    def __init__(
        self,
        rows: Sequence[int],
        seconds: Sequence[float],
        context_s: float = 0.0,
        session_s: float = 0.0,
    ) -> None:
        self._rows = [float(each) for each in rows]
        self._measured = _rising([float(each) for each in seconds])
        self._scale = 1.0
        self._factors = [1.0] * len(self._rows)
        self._seconds = self._measured
        self._context_s, self._session_s = context_s, session_s
        # Beside drafts, by which a pass is and is not taken for an interrupted one.
        self._excess_s = self._lost_s = self._drafted = 0.0

    @property
    def draft_s(self) -> float:
        """What passes lose to one drafted round's drafts and messages."""
        return max(0.0, self._lost_s / (self._drafted + _DRAFT_WEIGHT))

    def seconds(self, rows: float, context: int = 0, sessions: int = 1) -> float:
        """Return the seconds of a pass."""
        return _at(self._rows, self._seconds, rows) + self.beside_rows_s(context, sessions)

    def beside_rows_s(self, context: int, sessions: int) -> float:
        """Return the seconds of a pass that do not depend on its rows."""
        return self._scale * self._measured_beside_s(context, sessions)

    def curve(self, rows: float, more: int) -> Floats:
        """Return the seconds of passes over rows, rows + 1, ..., rows + more rows."""
        at = np.arange(rows, rows + more + 1)
        found: Floats = np.interp(at, self._rows, self._seconds)
        beyond = int(np.searchsorted(at, self._rows[-1], side="right"))
        found[beyond:] = [_at(self._rows, self._seconds, each) for each in at[beyond:]]
        return found

    def row_s(self, rows: float, more: int) -> float:
        """Return what each of so many more rows adds to a pass over rows."""
        return (self.seconds(rows + more) - self.seconds(rows)) / more

    def observe(self, done: Pass) -> None:
        """Learn from a pass."""
        expected = self.seconds(done.rows, done.context, done.sessions)
        seconds = min(done.seconds, _MOST * expected)
        usual_s = self._excess_s / (self._drafted + _DRAFT_WEIGHT)
        unexpected_s = seconds - expected - done.drafted * max(0.0, usual_s)
        fade = _DRAFT_FADE**done.drafted
        self._drafted = fade * self._drafted + done.drafted
        self._excess_s *= fade
        self._lost_s *= fade
        measured = _at(self._rows, self._measured, done.rows)
        beside = self._measured_beside_s(done.context, done.sessions)
        if done.beside_drafts:
            self._excess_s += seconds - expected
            self._lost_s += min(done.seconds, _MOST_BESIDE_DRAFTS * expected) - expected
            if seconds > _LEAST * expected:
                if done.alone and done.drafted:
                    moved = self._scale + _ALONE_SHARE * unexpected_s / (measured + beside)
                    # Not far below what the pass took, drafts and all.
                    least = _LEAST * seconds / (measured + beside)
                    self._scale = max(moved, min(least, self._scale))
                    self._rescale()
                return
        self._scale += _SHARE * (seconds / (measured + beside) - self._scale)
        # What the rows of the pass took by themselves, of what they would by the scale alone.
        factor = max(0.0, seconds / self._scale - beside) / measured
        right = min(bisect_left(self._rows, done.rows), len(self._rows) - 1)
        left = max(0, right - 1)
        width = max(1.0, self._rows[right] - self._rows[left])
        near_left = max(0.0, self._rows[right] - done.rows) / width
        for at, weight in ((left, near_left), (right, 1 - near_left)):
            self._factors[at] += _SHARE * weight * (factor - self._factors[at])
        self._rescale()

    def _rescale(self) -> None:
        parts = zip(self._factors, self._measured, strict=True)
        self._seconds = _rising([self._scale * factor * each for factor, each in parts])

    def _measured_beside_s(self, context: int, sessions: int) -> float:
        return self._context_s * context + self._session_s * max(0, sessions - 1)


def _at(rows: list[float], seconds: list[float], at: float) -> float:
    """Return the seconds at a number of rows; beyond the last the last slope goes on."""
    if at <= rows[0] or len(rows) == 1:
        return seconds[0]
    right = min(bisect_left(rows, at), len(rows) - 1)
    slope = (seconds[right] - seconds[right - 1]) / (rows[right] - rows[right - 1])
    return seconds[right - 1] + (float(at) - rows[right - 1]) * slope


def _rising(seconds: list[float]) -> list[float]:
    """Return costs that do not fall with more rows: noise only ever adds to a measurement."""
    return list(accumulate(reversed(seconds), min))[::-1]
