"""From ranks to tokens and back, for the state that drafts start from: Spiffy's Eq. 8 to 11.

The paper's ArgSort in Eq. 10 and 11 is read as its inverse, the rank, and over masked slots alone:
over all slots, a draft would fill what is filled already. The distribution is the last one that the
walk used, of the state before: at temperature 0 the present state's own would make drafts that are
always accepted, and it is not known before the call that drafts are for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from denoiser_service.core.draws import Floats, Ints, Logits, sums
from denoiser_service.core.graph import Candidate, Formula, RankedBy, by_step
from denoiser_service.core.next import Rule
from foredraft.decoding.block_state import State, fill, masked_slots


class Anchor(NamedTuple):
    """The state that drafts start from, the logits [L, V] of the state before, the logarithms [L]
    of their sums, and log p [L] of the likeliest tokens; `start` is the block's first position in
    the text.

    full is whether a full state is of use: the next block's first one is evaluated after it. least
    is the chance below which a draft is of no use.
    """

    state: State
    logits: Logits
    start: int
    normalisers: Floats
    peaks: Floats
    full: bool = False
    least: float = 0.0

    @classmethod
    def of(cls, state: State, logits: Logits, start: int) -> Anchor:
        """Return the anchor of a state with masked slots and the logits before it."""
        slots, (normalisers, peaks) = masked_slots(state), np.zeros((2, len(state)))
        found = sums(logits[slots])
        normalisers[slots], peaks[slots] = found.normalisers, found.highest - found.normalisers
        return cls(state, logits, start, normalisers, peaks)


class Draft(NamedTuple):
    """A drafted state, and the anchor's log p of the tokens that it fills."""

    state: State
    log_p: float


class _Step(NamedTuple):
    """A step's masked slots, the surest first (Eq. 8), and the likeliest tokens of each: what it
    draws, then what it would draw without those.
    """

    order: list[int]
    best: dict[int, list[int]]


class Ranks:
    """The candidates of one anchor, ranked once for each step's noise."""

    def __init__(self, anchor: Anchor, rule: Rule, ranked_by: RankedBy, deepest: int = 1) -> None:
        """Rank so many tokens of each slot at once."""
        self._anchor, self._deepest = anchor, deepest
        self._noisy = ranked_by is RankedBy.NOISE and rule.temperature > 0
        self._rule = rule if self._noisy else Rule(rule.unmasking, draws=rule.draws)
        self._slots = masked_slots(anchor.state)
        self._filled = len(anchor.state) - len(self._slots)
        self._steps: dict[int, _Step] = {}

    def candidate(self, slot: int, token: int, earlier: Collection[int] = ()) -> Candidate:
        """Return the ranks (Eq. 10, 11) of a slot's token that is filled after these slots.

        Without noise all steps are alike: ranks are those of the first one then. Raise ValueError
        if the slot is filled, or one of the earlier ones.
        """
        if not self._noisy:
            earlier = ()
        [scores] = self._rule.scores(*self._rows([slot], len(earlier)))
        own = scores[token]
        higher = int((scores > own).sum() + (scores[:token] == own).sum())
        order = [each for each in self._step(len(earlier)).order if each not in earlier]
        return Candidate(order.index(slot) + 1, higher + 1, len(earlier))

    def draft(self, formula: Formula) -> Draft | None:
        """Return the draft of a formula (Eq. 9).

        None where a slot would be filled twice, or there are fewer, or a token is impossible.
        """
        filled: dict[int, int] = {}
        log_p = 0.0
        for candidate in by_step(formula):
            earlier = list(filled)[: candidate.after]
            order = [s for s in self._step(candidate.after).order if s not in earlier]
            if candidate.position > len(order):
                return None
            slot = order[candidate.position - 1]
            token = self._token(slot, candidate)
            if slot in filled or token is None:
                return None
            filled[slot] = token
            log_p += self._log_p(slot, token)
        return Draft(fill(self._anchor.state, filled), log_p)

    def _step(self, after: int) -> _Step:
        after = after if self._noisy else 0
        if after not in self._steps:
            drawn = self._likeliest(self._slots, after, self._deepest)
            best = dict(zip(self._slots, drawn, strict=True))
            sure = {slot: self._log_p(slot, tokens[0]) for slot, tokens in best.items()}
            order = sorted(self._slots, key=lambda slot: (-sure[slot], slot))
            self._steps[after] = _Step(order, best)
        return self._steps[after]

    def _token(self, slot: int, candidate: Candidate) -> int | None:
        """Return the token with a candidate's rank in a slot, None where it has no probability."""
        best = self._step(candidate.after).best[slot]
        if candidate.vocabulary > max(self._deepest, len(best)):
            [best] = self._likeliest([slot], candidate.after, candidate.vocabulary)
        return best[candidate.vocabulary - 1] if candidate.vocabulary <= len(best) else None

    def _likeliest(self, slots: list[int], after: int, count: int) -> list[list[int]]:
        return self._rule.likeliest(*self._rows(slots, after), count)

    def _rows(self, slots: list[int], after: int) -> tuple[Logits, int, Ints]:
        """Return the logits of slots, how many are filled before the step, and their positions."""
        filled = self._filled + (after if self._noisy else 0)
        positions = self._anchor.start + np.array(slots, dtype=np.int64)
        return self._anchor.logits[slots], filled, positions

    def _log_p(self, slot: int, token: int) -> float:
        return float(self._anchor.logits[slot, token]) - float(self._anchor.normalisers[slot])
