"""From ranks to tokens and back, for the state that drafts start from: Spiffy's Eq. 8 to 11.

The paper's ArgSort in Eq. 10 and 11 is read as its inverse, the rank, and over masked slots alone:
over all slots, a draft would fill what is filled already. The distribution is the last one that the
walk used, of the state before: at temperature 0 the present state's own would make drafts that are
always accepted, and it is not known before the call that drafts are for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from denoiser_service.core.graph import Candidate, Formula, RankedBy
from denoiser_service.core.next import Floats, Logits, Rule, log_probs
from foredraft.decoding.block_state import State, fill, masked_slots, num_filled


class Anchor(NamedTuple):
    """The state that drafts start from, and the logits [L, V] of the state before; `start` is the
    block's first position in the text.
    """

    state: State
    logits: Logits
    start: int


class Draft(NamedTuple):
    """A drafted state, and the anchor's log p of each token that it fills ahead."""

    state: State
    log_p: tuple[float, ...]


class Ranks:
    """The candidates of one anchor, ranked once for each step's noise."""

    def __init__(self, anchor: Anchor, rule: Rule, ranked_by: RankedBy) -> None:
        self._anchor, self._rule = anchor, rule
        self._noisy = ranked_by is RankedBy.NOISE and rule.temperature > 0
        self._slots = masked_slots(anchor.state)
        self._log_p = log_probs(anchor.logits[self._slots])
        self._ranked: dict[int, tuple[Floats, list[int]]] = {}

    def _at(self, after: int) -> tuple[Floats, list[int]]:
        """Return scores [masked slots, V] and rows in the order of Eq. 8, after so many tokens."""
        if after not in self._ranked:
            scores = self._log_p
            if self._noisy:
                positions = self._anchor.start + np.array(self._slots, dtype=np.int64)
                filled = num_filled(self._anchor.state) + after
                scores = self._rule.scores(self._log_p, filled, positions)
            confidence = self._log_p[np.arange(len(scores)), scores.argmax(axis=1)]
            order = np.argsort(-confidence, kind="stable")
            self._ranked[after] = scores, [int(row) for row in order]
        return self._ranked[after]

    def candidate(self, slot: int, token: int, after: int) -> Candidate:
        """Return the ranks (Eq. 10, 11) of a slot's token that is filled after so many others."""
        after = after if self._noisy else 0
        scores, order = self._at(after)
        row = self._slots.index(slot)
        own = scores[row, token]
        higher = int((scores[row] > own).sum() + (scores[row, :token] == own).sum())
        return Candidate(order.index(row) + 1, higher + 1, after)

    def draft(self, formula: Formula) -> Draft | None:
        """Return the anchor's state with a formula's tokens (Eq. 9).

        None where it names a slot twice, more masked slots than there are, or an impossible token.
        """
        tokens: dict[int, int] = {}
        log_p: list[float] = []
        for candidate in sorted(formula):
            scores, order = self._at(candidate.after if self._noisy else 0)
            if candidate.position > len(order) or candidate.vocabulary > scores.shape[1]:
                return None
            row = order[candidate.position - 1]
            token = _ranked_token(scores[row], candidate.vocabulary)
            if self._slots[row] in tokens or np.isneginf(self._log_p[row, token]):
                return None
            tokens[self._slots[row]] = token
            log_p.append(float(self._log_p[row, token]))
        return Draft(fill(self._anchor.state, tokens), tuple(log_p))


def _ranked_token(scores: Floats, rank: int) -> int:
    """Return the token with this rank, from 1, in scores [V]; equal scores rank by token."""
    if rank == 1:
        return int(scores.argmax())
    return int(np.argsort(-scores, kind="stable")[rank - 1])
