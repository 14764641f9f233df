"""Drafts at a price: how many of each session's drafted states the next call evaluates.

A state's rows cost time, whether or not the walk comes to it. So drafts of all sessions are bought
in the order of their chance for each second that they add, as long as the call's expected steps for
each second rise: by the verifier's price of draft tokens, with steps for tokens and a state's slots
for rows. The time beside calls does not count: unlike a verifier's, it grows with the steps. Making
drafts takes time, too, so none are made where the surest token's chance would not pay for that as
well. Even to look takes time: where nothing was bought for a while, nobody looks for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from denoiser_service.session import Session
from verifier_service.schedule.costs import Pass
from verifier_service.schedule.pricing import Offer, Pricing

Sessions = Mapping[int, Session]

# How fast the time that a session's drafts take is followed.
_DRAFT_SHARE = 0.1
# After so many calls for which nothing was bought the market rests for as many calls; if nothing is
# bought then either, for twice as many, at most so many.
_PATIENCE, _LONGEST_REST = 8, 32


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
        # Calls in a row for which nothing was bought, calls left to rest, and how many the next
        # rest has.
        self._unsold = self._rest = 0
        self._next_rest = _PATIENCE

    def buy(self, sessions: Sessions) -> float:
        """Choose how many of its drafts each session has evaluated in the next call; return the
        seconds that it took to make them and choose.
        """
        began = self._clock()
        if self._rest:
            self._rest -= 1
            for session in sessions.values():
                session.buy(0)
            return self._clock() - began
        rows = rounds = prefill = 0
        buyers: list[int] = []
        for key, session in sessions.items():
            if session.pending is None or session.unread > self._length:
                prefill += session.unread
                continue
            rounds += 1
            rows += session.unread + self._length
            if session.may_draft:
                buyers.append(key)
        rows += min(prefill, self._prefill_rows)
        least = self._least_chance(rows, rounds)
        offers = [self._made(key, sessions[key]) for key in buyers if sessions[key].hope > least]
        bought = self._bought(offers, rows, rounds)
        for key in buyers:
            sessions[key].buy(bought.get(key, 0))
        if buyers:
            self._sold(any(bought.values()))
        return self._clock() - began

    def called(self, rows: int, context: int, parts: int, seconds: float) -> None:
        """Learn from a call of so many rows, behind so many tokens, in so many parts."""
        if self._rest:
            return
        self._pricing.passed(Pass(rows, context, seconds, sessions=parts), 0.0)

    def _sold(self, something: bool) -> None:
        """Rest once nothing was bought for a while."""
        if something:
            self._unsold, self._next_rest = 0, _PATIENCE
            return
        self._unsold += 1
        if self._unsold >= _PATIENCE:
            self._unsold = _PATIENCE - 1
            self._rest = self._next_rest
            self._next_rest = min(2 * self._next_rest, _LONGEST_REST)

    def _least_chance(self, rows: int, rounds: int) -> float:
        """Return what a draft's chance must exceed to pay for making it and for its rows, which are
        cheapest for some number of drafts.
        """
        call_s = self._pricing.pass_s(rows, 0)
        if not call_s or not rounds:
            return 0.0
        draft_s = min(
            (self._pricing.pass_s(rows + drafts * self._length, 0) - call_s) / drafts
            for drafts in (1, 2, rounds, 2 * rounds)
        )
        return rounds * (draft_s + self._draft_s) / call_s

    def _made(self, key: int, session: Session) -> Offer:
        began = self._clock()
        offer = Offer(key, session.offer(), session.draft_rows)
        self._draft_s += _DRAFT_SHARE * (self._clock() - began - self._draft_s)
        return offer

    def _bought(self, offers: list[Offer], rows: int, rounds: int) -> dict[int, int]:
        offers = [offer for offer in offers if offer.expected]
        if not offers:
            return {}
        counts = self._pricing.buy(offers, rows, rounds)
        return {offer.key: count for offer, count in zip(offers, counts, strict=True)}
