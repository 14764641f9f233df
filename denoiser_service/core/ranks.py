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

    full is whether a full state is of use: the next block's first one is evaluated after it.
    """

    state: State
    logits: Logits
    start: int
    normalisers: Floats
    peaks: Floats
    full: bool = False

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


class Ranks:
    """The candidates of one anchor, ranked once for each step's noise."""

    def __init__(self, anchor: Anchor, rule: Rule, ranked_by: RankedBy) -> None:
        self._anchor = anchor
        self._noisy = ranked_by is RankedBy.NOISE and rule.temperature > 0
        self._rule = rule if self._noisy else Rule(rule.unmasking, draws=rule.draws)
        self._slots = masked_slots(anchor.state)
        self._filled = len(anchor.state) - len(self._slots)
        self._orders: dict[int, list[int]] = {}

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
        order = [each for each in self._order(len(earlier)) if each not in earlier]
        return Candidate(order.index(slot) + 1, higher + 1, len(earlier))

    def draft(self, formula: Formula) -> Draft | None:
        """Return the draft of a formula (Eq. 9).

        None where a slot would be filled twice, or there are fewer, or a token is impossible.
        """
        filled: dict[int, int] = {}
        log_p = 0.0
        for candidate in by_step(formula):
            earlier = list(filled)[: candidate.after]
            order = [slot for slot in self._order(candidate.after) if slot not in earlier]
            if candidate.position > len(order):
                return None
            slot = order[candidate.position - 1]
            tokens = self._likeliest([slot], candidate.after, candidate.vocabulary)[0]
            if slot in filled or candidate.vocabulary > len(tokens):
                return None
            filled[slot] = tokens[candidate.vocabulary - 1]
            log_p += self._log_p(slot, filled[slot])
        return Draft(fill(self._anchor.state, filled), log_p)

    def _order(self, after: int) -> list[int]:
        """Return the masked slots by how sure a step is of what it draws in them (Eq. 8)."""
        after = after if self._noisy else 0
        if after not in self._orders:
            drawn = self._likeliest(self._slots, after, 1)
            surest = {
                s: self._log_p(s, *tokens) for s, tokens in zip(self._slots, drawn, strict=True)
            }
            self._orders[after] = sorted(self._slots, key=lambda slot: (-surest[slot], slot))
        return self._orders[after]

    def _likeliest(self, slots: list[int], after: int, count: int) -> list[list[int]]:
        return self._rule.likeliest(*self._rows(slots, after), count)

    def _rows(self, slots: list[int], after: int) -> tuple[Logits, int, Ints]:
        """Return the logits of slots, how many are filled before the step, and their positions."""
        filled = self._filled + (after if self._noisy else 0)
        positions = self._anchor.start + np.array(slots, dtype=np.int64)
        return self._anchor.logits[slots], filled, positions

    def _log_p(self, slot: int, token: int) -> float:
        return float(self._anchor.logits[slot, token]) - float(self._anchor.normalisers[slot])
