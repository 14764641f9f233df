"""From ranks to tokens and back, for the state that drafts start from: Spiffy's Eq. 8 to 11.

The paper's ArgSort in Eq. 10 and 11 is read as its inverse, the rank, and over masked slots alone:
over all slots, a draft would fill what is filled already. The distribution is the last one that the
walk used, of the state before: at temperature 0 the present state's own would make drafts that are
always accepted, and it is not known before the call that drafts are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from denoiser_service.core.draws import Floats, Logits, sums
from denoiser_service.core.graph import Candidate, RankedBy
from denoiser_service.core.next import Rule
from foredraft.decoding.block_state import State, fill, masked_slots, num_filled


class Anchor(NamedTuple):
    """The state that drafts start from, the logits [L, V] of the state before, and the logarithms
    [L] of their sums; `start` is the block's first position in the text.

    full is whether a full state is of use: the next block's first one is evaluated after it.
    """

    state: State
    logits: Logits
    start: int
    normalisers: Floats
    full: bool = False

    @classmethod
    def of(cls, state: State, logits: Logits, start: int) -> Anchor:
        """Return the anchor of a state with masked slots and the logits before it."""
        slots, normalisers = masked_slots(state), np.zeros(len(state))
        normalisers[slots] = sums(logits[slots]).normalisers
        return cls(state, logits, start, normalisers)


class Draft(NamedTuple):
    """The tokens by slot that a draft fills ahead of its anchor, and the anchor's log p of each."""

    anchor: State
    tokens: Mapping[int, int]
    log_p: tuple[float, ...]

    @property
    def state(self) -> State:
        """The drafted state."""
        return fill(self.anchor, self.tokens)


class _Named(NamedTuple):
    """What a candidate names: a masked slot, a token, and its log p."""

    slot: int
    token: int
    log_p: float


class _Ranked(NamedTuple):
    """After so many tokens: what each masked slot draws, then what it would draw without those, and
    the slots' rows in the order of Eq. 8.
    """

    best: list[list[int]]
    order: list[int]


class Ranks:
    """The candidates of one anchor, ranked once for each step's noise; full is the anchor's."""

    def __init__(self, anchor: Anchor, rule: Rule, ranked_by: RankedBy, deepest: int = 1) -> None:
        """Rank so many tokens of each slot at once."""
        self._deepest = deepest
        self._state = anchor.state
        self.full = anchor.full
        noisy = ranked_by is RankedBy.NOISE and rule.temperature > 0
        self._rule = rule if noisy else Rule(rule.unmasking, draws=rule.draws)
        self._noisy = noisy
        self._slots = masked_slots(anchor.state)
        self._positions = anchor.start + np.array(self._slots, dtype=np.int64)
        self._logits = anchor.logits[self._slots]
        self._normalisers = anchor.normalisers[self._slots]
        self._ranked: dict[int, _Ranked] = {}
        # Formulas share most of their candidates.
        self._named: dict[Candidate, _Named | None] = {}

    def _at(self, after: int) -> _Ranked:
        if after not in self._ranked:
            filled = num_filled(self._state) + after
            best = self._rule.likeliest(self._logits, filled, self._positions, self._deepest)
            drawn = [tokens[0] for tokens in best]
            confidence = self._logits[np.arange(len(drawn)), drawn] - self._normalisers
            order = np.argsort(-confidence, kind="stable")
            self._ranked[after] = _Ranked(best, order.tolist())
        return self._ranked[after]

    def _scores(self, row: int, after: int) -> Floats:
        """Return what one slot draws the maximum of, [V]."""
        only = slice(row, row + 1)
        filled = num_filled(self._state) + after
        scores: Floats = self._rule.scores(self._logits[only], filled, self._positions[only])[0]
        return scores

    def candidate(self, slot: int, token: int, after: int) -> Candidate:
        """Return the ranks (Eq. 10, 11) of a slot's token that is filled after so many others."""
        after = after if self._noisy else 0
        row = self._slots.index(slot)
        scores = self._scores(row, after)
        own = scores[token]
        higher = int((scores > own).sum() + (scores[:token] == own).sum())
        return Candidate(self._at(after).order.index(row) + 1, higher + 1, after)

    def draft(self, formula: Iterable[Candidate]) -> Draft | None:
        """Return the anchor's state with a formula's tokens (Eq. 9).

        None where it names a slot twice, more masked slots than there are, or an impossible token.
        """
        tokens: dict[int, int] = {}
        log_p: list[float] = []
        for candidate in formula:
            if candidate not in self._named:
                self._named[candidate] = self._name(candidate)
            named = self._named[candidate]
            if named is None or named.slot in tokens:
                return None
            tokens[named.slot] = named.token
            log_p.append(named.log_p)
        return Draft(self._state, tokens, tuple(log_p))

    def _name(self, candidate: Candidate) -> _Named | None:
        ranked = self._at(candidate.after if self._noisy else 0)
        if candidate.position > len(ranked.order):
            return None
        row = ranked.order[candidate.position - 1]
        token = self._token(row, candidate)
        if token is None:
            return None
        return _Named(
            self._slots[row], token, float(self._logits[row, token] - self._normalisers[row])
        )

    def _token(self, row: int, candidate: Candidate) -> int | None:
        """Return the token with a candidate's rank in a row, None where it has no probability."""
        after = candidate.after if self._noisy else 0
        best = self._at(after).best[row]
        if candidate.vocabulary > max(self._deepest, len(best)):
            only, filled = slice(row, row + 1), num_filled(self._state) + after
            [best] = self._rule.likeliest(
                self._logits[only], filled, self._positions[only], candidate.vocabulary
            )
        rank = candidate.vocabulary - 1
        return best[rank] if rank < len(best) else None
