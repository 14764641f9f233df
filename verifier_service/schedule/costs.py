"""What a forward pass costs by its rows, in seconds: measured at start-up and kept true online.

The measured curve is linear between a few numbers of rows. Passes that are observed later move it
by factors: one for all costs, as a machine that others use, too, is slower at times, and one for
each measured number of rows. Passes of sessions that draft do not move it: what they take
longer is what drafts cost them, on a machine that drafter and verifier share. Only if they are much
shorter than expected the curve is wrong, as one that was measured beside other work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The share of an observation in the moving averages of both kinds of factors.
_SHARE = 0.05
# A pass that took more times as long as expected was interrupted: that is no cost.
_MOST = 1.5
# One that took less of what was expected shows that this is wrong, drafts beside it or not.
_LEAST = 0.8
# How fast the cost of drafts forgets: about the last 200 drafted rounds count. Before any was seen
# it is none, with the weight of so many rounds.
_DRAFT_FADE = 0.995
_DRAFT_WEIGHT = 4.0


@dataclass(frozen=True, slots=True)
class Pass:
    """A finished pass: its rows, the tokens before them in their sessions, its seconds.

    beside_drafts says that some of the sessions draft, drafted counts the drafted rounds that it
    decided, sessions those whose rows it had.
    """

    rows: int
    context: int
    seconds: float
    beside_drafts: bool = False
    drafted: int = 0
    sessions: int = 1


class PassCosts:
    """The curve through seconds at ascending rows of one session.

    Beside it, context_s for each token before them and session_s for each further session.
    """

    def __init__(
        self,
        rows: Sequence[int],
        seconds: Sequence[float],
        context_s: float = 0.0,
        session_s: float = 0.0,
    ) -> None:
        self._rows: Floats = np.array(rows, dtype=np.float64)
        self._measured = _rising(np.array(seconds, dtype=np.float64))
        self._scale = 1.0
        self._factors: Floats = np.ones(len(rows))
        self._seconds = self._measured
        self._context_s, self._session_s = context_s, session_s
        self._excess_s = self._drafted = 0.0

    @property
    def draft_s(self) -> float:
        """What passes lose to one drafted round's drafts and messages."""
        return max(0.0, self._excess_s / (self._drafted + _DRAFT_WEIGHT))

    def seconds(self, rows: float, context: int = 0, sessions: int = 1) -> float:
        """Return the seconds of a pass."""
        return float(self.curve(rows, 0)[0]) + self.beside_rows_s(context, sessions)

    def beside_rows_s(self, context: int, sessions: int) -> float:
        """Return the seconds of a pass that do not depend on its rows."""
        return self._scale * self._measured_beside_s(context, sessions)

    def curve(self, rows: float, more: int) -> Floats:
        """Return the seconds of passes over rows, rows + 1, ..., rows + more rows."""
        return _line(self._rows, self._seconds, np.arange(rows, rows + more + 1))

    def row_s(self, rows: float, more: int) -> float:
        """Return what each of so many more rows adds to a pass over rows."""
        costs = self.curve(rows, more)
        return float(costs[-1] - costs[0]) / more

    def observe(self, done: Pass) -> None:
        """Learn from a pass."""
        expected = self.seconds(done.rows, done.context, done.sessions)
        seconds = min(done.seconds, _MOST * expected)
        fade = _DRAFT_FADE**done.drafted
        self._drafted = fade * self._drafted + done.drafted
        self._excess_s *= fade
        if done.beside_drafts:
            self._excess_s += seconds - expected
            if seconds > _LEAST * expected:
                return
        measured = float(_line(self._rows, self._measured, np.array([done.rows]))[0])
        beside = self._measured_beside_s(done.context, done.sessions)
        self._scale += _SHARE * (seconds / (measured + beside) - self._scale)
        # What the rows of the pass took by themselves, of what they would by the scale alone.
        factor = max(0.0, seconds / self._scale - beside) / measured
        right = min(int(np.searchsorted(self._rows, done.rows)), len(self._rows) - 1)
        left = max(0, right - 1)
        width = max(1.0, float(self._rows[right] - self._rows[left]))
        near_left = max(0.0, float(self._rows[right] - done.rows)) / width
        for at, weight in ((left, near_left), (right, 1 - near_left)):
            self._factors[at] += _SHARE * weight * (factor - self._factors[at])
        self._seconds = _rising(self._scale * self._factors * self._measured)

    def _measured_beside_s(self, context: int, sessions: int) -> float:
        return self._context_s * context + self._session_s * max(0, sessions - 1)


def _line(rows: Floats, seconds: Floats, at: Floats) -> Floats:
    """Return the seconds at some numbers of rows; beyond the last the last slope goes on."""
    found: Floats = np.interp(at, rows, seconds)
    beyond = np.maximum(at - rows[-1], 0.0)
    if len(rows) > 1 and beyond[-1] > 0:
        found = found + beyond * (seconds[-1] - seconds[-2]) / (rows[-1] - rows[-2])
    return found


def _rising(seconds: Floats) -> Floats:
    """Return costs that do not fall with more rows: noise only ever adds to a measurement."""
    return np.minimum.accumulate(seconds[::-1])[::-1].copy()
