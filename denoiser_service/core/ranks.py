"""From ranks to tokens and back, for the state that drafts start from: Spiffy's Eq. 8 to 11.

The paper's ArgSort in Eq. 10 and 11 is read as its inverse, the rank, and over masked slots alone:
over all slots, a draft would fill what is filled already. The distribution is the last one that the
walk used, of the state before: at temperature 0 the present state's own would make drafts that are
always accepted, and it is not known before the call that drafts are for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from denoiser_service.core.draws import Floats, Ints, Logits, sums
from denoiser_service.core.graph import ROOT, Candidate, DraftGraph, RankedBy
from denoiser_service.core.next import Rule
from foredraft.decoding.block_state import State, fill, masked_slots

_AT_ONCE = 4
"""Slots of a step that are drawn at once: a call of the kernel costs as much as a slot or two."""


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
    """The tokens that are filled ahead of an anchor, each in its slot, and the anchor's log p of
    them all.
    """

    anchor: State
    slots: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    log_p: float = 0.0

    @property
    def state(self) -> State:
        """The drafted state."""
        return fill(self.anchor, dict(zip(self.slots, self.tokens, strict=True)))


@dataclass(slots=True)
class _Step:
    """A step's masked slots: those that were drawn, in the order of Eq. 8, and the others.

    best are the tokens that a slot draws, then what it would draw without those.
    """

    left: list[int]
    best: dict[int, list[int]] = field(default_factory=dict)
    confidence: dict[int, float] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)


class Ranks:
    """The candidates of one anchor, ranked once for each step's noise; full is the anchor's."""

    def __init__(self, anchor: Anchor, rule: Rule, ranked_by: RankedBy, deepest: int = 1) -> None:
        """Rank so many tokens of each slot at once."""
        self._deepest = deepest
        self.state, self.full = anchor.state, anchor.full
        self._logits, self._start = anchor.logits, anchor.start
        self._noisy = ranked_by is RankedBy.NOISE and rule.temperature > 0
        self._rule = rule if self._noisy else Rule(rule.unmasking, draws=rule.draws)
        self._normalisers: list[float] = anchor.normalisers.tolist()
        self._peaks: list[float] = anchor.peaks.tolist()
        slots = masked_slots(anchor.state)
        self._filled = len(anchor.state) - len(slots)
        self._surest_first = sorted(slots, key=lambda slot: -self._peaks[slot])
        self._steps: dict[int, _Step] = {}

    def candidate(self, slot: int, token: int, earlier: Collection[int] = ()) -> Candidate:
        """Return the ranks (Eq. 10, 11) of a slot's token that is filled after these slots.

        Without noise all steps are alike: ranks are those of the first one then. Raise ValueError
        if the slot is filled, or one of the earlier ones.
        """
        if not self._noisy:
            earlier = ()
        rule, after = self._rule, len(earlier)
        [scores] = rule.scores(
            self._logits[slot : slot + 1], self._filled + after, self._positions([slot])
        )
        own = scores[token]
        higher = int((scores > own).sum() + (scores[:token] == own).sum())
        open_slots = [each for each in self._surest_first if each not in earlier]
        order = [self._slot(after, at + 1, earlier) for at in range(len(open_slots))]
        return Candidate(order.index(slot) + 1, higher + 1, after)

    def extended(self, draft: Draft, candidate: Candidate) -> Draft | None:
        """Return a draft with one more token (Eq. 9), of the same step as the last one or later.

        None where the slot is filled already, or there are fewer, or the token is impossible.
        """
        earlier = draft.slots[: candidate.after]
        slot = self._slot(candidate.after, candidate.position, earlier)
        if slot is None or slot in draft.slots:
            return None
        token = self._token(slot, candidate)
        if token is None:
            return None
        log_p = draft.log_p + self._log_p(slot, token)
        return Draft(draft.anchor, (*draft.slots, slot), (*draft.tokens, token), log_p)

    def _slot(self, after: int, position: int, taken: Collection[int]) -> int | None:
        """Return the slot with a position's rank (Eq. 10) among those that are not taken, None
        where there are fewer.

        No slot is surer of what it draws than of its likeliest token, so that slots are drawn only
        until none of the others can come before.
        """
        step = self._step(after)
        while True:
            found = [slot for slot in step.order if slot not in taken]
            slot = found[position - 1] if position <= len(found) else None
            if not step.left:
                return slot
            if slot is not None and step.confidence[slot] > self._peaks[step.left[0]]:
                return slot
            self._draw(step, after)

    def _step(self, after: int) -> _Step:
        after = after if self._noisy else 0
        if after not in self._steps:
            self._steps[after] = _Step(self._surest_first)
        return self._steps[after]

    def _draw(self, step: _Step, after: int) -> None:
        slots, step.left = step.left[:_AT_ONCE], step.left[_AT_ONCE:]
        for slot, tokens in zip(slots, self._likeliest(slots, after, self._deepest), strict=True):
            step.best[slot] = tokens
            step.confidence[slot] = self._log_p(slot, tokens[0])
        step.order = sorted(step.best, key=lambda slot: (-step.confidence[slot], slot))

    def _token(self, slot: int, candidate: Candidate) -> int | None:
        """Return the token with a candidate's rank in a slot, None where it has no probability."""
        best = self._step(candidate.after).best[slot]
        if candidate.vocabulary > max(self._deepest, len(best)):
            [best] = self._likeliest([slot], candidate.after, candidate.vocabulary)
        rank = candidate.vocabulary - 1
        return best[rank] if rank < len(best) else None

    def _likeliest(self, slots: list[int], after: int, count: int) -> list[list[int]]:
        filled = self._filled + (after if self._noisy else 0)
        return self._rule.likeliest(self._logits[slots], filled, self._positions(slots), count)

    def _positions(self, slots: list[int]) -> Ints:
        return self._start + np.array(slots, dtype=np.int64)

    def _log_p(self, slot: int, token: int) -> float:
        return float(self._logits[slot, token]) - self._normalisers[slot]


class Drafts:
    """The drafts of a graph's prefixes, each made when it is first asked for."""

    def __init__(self, ranks: Ranks, graph: DraftGraph) -> None:
        self._ranks, self._graph = ranks, graph
        self._made: dict[int, Draft | None] = {ROOT: Draft(ranks.state)}

    def of(self, prefix: int) -> Draft | None:
        """Return the draft of a prefix, None where it has none."""
        if prefix not in self._made:
            shorter, candidate = self._graph.prefixes[prefix]
            known = self.of(shorter)
            made = None if known is None else self._ranks.extended(known, candidate)
            self._made[prefix] = made
        return self._made[prefix]
