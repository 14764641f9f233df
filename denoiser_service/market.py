"""Drafts at a price: how many of each session's drafted states the next call evaluates.

A state's rows cost time, whether or not the walk comes to it. So drafts of all sessions are bought
in the order of their chance for each second that they add, as long as the call's expected steps for
each second rise: by the verifier's price of draft tokens, with steps for tokens and a state's slots
for rows. The time beside calls does not count: unlike a verifier's, it grows with the steps. Making
drafts takes time, too, so none are made where the surest token's chance would not pay for that as
well. Even to look takes time: where what was bought did not save that, nobody looks for a while.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping

from denoiser_service.session import Session
from verifier_service.schedule.costs import Pass
from verifier_service.schedule.pricing import Offer, Pricing

Sessions = Mapping[int, Session]

# How fast the time that a session's drafts take is followed.
_DRAFT_SHARE = 0.1
# After so many calls whose drafts did not pay the market rests for as many calls. It then tries
# again for a few; if they do not pay either, it rests for twice as many, at most so many.
_PATIENCE, _TRIAL, _LONGEST_REST = 8, 2, 64


class Rests:
    """When nobody looks at drafts, because those of the last calls did not pay for the looking."""

    def __init__(self) -> None:
        self._looked, self._saved_s = 0, 0.0
        self._patience = _PATIENCE
        self._left, self._next = 0, _PATIENCE

    def take(self) -> bool:
        """Return whether this call is one of a rest."""
        resting = self._left > 0
        self._left -= resting
        return resting

    def looked(self, saved_s: float) -> None:
        """Learn what a call's drafts are expected to save, less the time of looking."""
        self._looked += 1
        self._saved_s += saved_s
        if self._looked < self._patience:
            return
        if self._saved_s > 0:
            self._patience = self._next = _PATIENCE
        else:
            self._patience, self._left = _TRIAL, self._next
            self._next = min(2 * self._next, _LONGEST_REST)
        self._looked, self._saved_s = 0, 0.0


class Market:
    """Trades the states of one engine's calls; keys name sessions."""

    def __init__(
        self,
        pricing: Pricing,
        block_length: int,
        prefill_rows: int,
        clock: Callable[[], float],
    ) -> None:
        self._pricing, self._clock = pricing, clock
        self._length, self._prefill_rows = block_length, prefill_rows
        self._draft_s = 0.0
        # By the number of sessions that share a call: drafts that pay for one may not for many.
        self._rests: defaultdict[int, Rests] = defaultdict(Rests)
        self._resting = False

    def buy(self, sessions: Sessions) -> float:
        """Choose how many of its drafts each session has evaluated in the next call; return the
        seconds that it took to make them and choose.
        """
        began = self._clock()
        rounds = prefill = unread = 0
        buyers: list[int] = []
        for key, session in sessions.items():
            if session.pending is None or session.unread > self._length:
                prefill += session.unread
                continue
            rounds += 1
            unread += session.unread
            if session.may_draft:
                buyers.append(key)
        self._resting = bool(buyers) and self._rests[rounds].take()
        if self._resting or not buyers:
            for key in buyers:
                sessions[key].buy(0)
            return self._clock() - began
        # What is read is read with drafts or without: a draft saves nothing of it.
        rows, read = rounds * self._length, unread + min(prefill, self._prefill_rows)
        least, making = self._least_chances(rows, read, rounds)
        hopeful = [key for key in buyers if sessions[key].hope > least + making]
        offers = [self._made(key, sessions[key], least) for key in hopeful]
        bought = self._bought(offers, rows, read, rounds)
        for key in buyers:
            sessions[key].buy(bought.get(key, 0))
        seconds = self._clock() - began
        saved_s = self._saved_s(offers, bought, rows, read, rounds)
        self._rests[rounds].looked(saved_s - seconds)
        return seconds

    def called(self, rows: int, context: int, parts: int, seconds: float) -> None:
        """Learn from a call of so many rows, behind so many tokens, in so many parts."""
        if self._resting:
            return
        self._pricing.passed(Pass(rows, context, seconds, sessions=parts), 0.0)

    def _saved_s(
        self, offers: list[Offer], bought: Mapping[int, int], rows: int, read: int, rounds: int
    ) -> float:
        """Return what the drafts that were bought are expected to save of the time of calls."""
        call_s = self._pricing.pass_s(rows, 0)
        if not call_s:
            return math.inf
        steps, added = 0.0, 0
        for offer in offers:
            count = bought.get(offer.key, 0)
            steps += sum(offer.expected[:count])
            added += sum(offer.rows[:count])
        if not added:
            return 0.0
        rows += read
        added_s = self._pricing.pass_s(rows + added, 0) - self._pricing.pass_s(rows, 0)
        return steps * call_s / rounds - added_s

    def _least_chances(self, rows: int, read: int, rounds: int) -> tuple[float, float]:
        """Return what a draft's chance must exceed to pay for its rows, which are cheapest for some
        number of drafts, and by how much to pay for making it, too.
        """
        call_s = self._pricing.pass_s(rows, 0)
        if not call_s or not rounds:
            return 0.0, 0.0
        without_s = self._pricing.pass_s(rows + read, 0)
        draft_s = min(
            (self._pricing.pass_s(rows + read + drafts * self._length, 0) - without_s) / drafts
            for drafts in {1, 2, rounds, 2 * rounds}
        )
        return rounds * draft_s / call_s, rounds * self._draft_s / call_s

    def _made(self, key: int, session: Session, least: float) -> Offer:
        began = self._clock()
        offer = Offer(key, session.offer(least), session.draft_rows)
        self._draft_s += _DRAFT_SHARE * (self._clock() - began - self._draft_s)
        return offer

    def _bought(self, offers: list[Offer], rows: int, read: int, rounds: int) -> dict[int, int]:
        offers = [offer for offer in offers if offer.expected]
        if not offers:
            return {}
        counts = self._pricing.buy(offers, rows, rounds, read)
        return {offer.key: count for offer, count in zip(offers, counts, strict=True)}
