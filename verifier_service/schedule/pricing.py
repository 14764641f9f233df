"""Rows at a price: which offered draft tokens a pass verifies. Pure.

A draft is an offer; the verifier buys. A pass has one row for each session that decides a round,
prefill's share, and then draft tokens of all sessions in the order of their expected acceptance
for each second that they add, as long as the pass's expected tokens per second rise. In that order
parents come before their children, because they are at least as likely. Prefill's own seconds are
left aside: they are spent in any case, and a token that a draft saves would not have taken them.

Under `coupled` any purchase is exact, because each kept token is the target's own draw whether or
not it was bought. The other rules draw with random numbers that a draft may have been sampled by:
a sampled path is verified whole or not at all, and that is not decided by its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from foredraft.types import NO_PRICE, Price
from verifier_service.schedule.costs import Pass, PassCosts

# The rows of each session over which the price of one more is averaged: about a draft.
_HORIZON = 8
# Rows that cost nothing are bought in the order of what they bring.
_LEAST_ROW_S = 1e-9
# By how much a pass's expected tokens per second must rise for any row to be bought: what looks
# best is overrated most, and rows of drafts take time outside the pass, too.
_WORTH = 1.03
# How fast the time between passes is followed.
_IDLE_SHARE = 0.1


class Offer(NamedTuple):
    """A session's draft: how likely each of its tokens is accepted, none likelier than before, how
    many rows each adds to the pass, and the seconds that any of them costs beside rows.
    """

    key: int
    expected: Sequence[float]
    rows: Sequence[int]
    beside_s: float = 0.0


def tokens_per_second(offer: Offer, row_s: float) -> list[float]:
    """Return what each of an offer's tokens is expected to bring for each second that it adds.

    Tokens that pay only together, for what any of them costs or for one of many rows, have the same
    figure, so that none has more than the ones before it.
    """
    groups: list[tuple[float, float, int]] = []
    for number, (tokens, rows) in enumerate(zip(offer.expected, offer.rows, strict=True)):
        seconds, count = max(row_s, _LEAST_ROW_S) * rows, 1
        if number == 0:
            seconds += offer.beside_s
        while groups and tokens * groups[-1][1] > groups[-1][0] * seconds:
            before, before_s, others = groups.pop()
            tokens, seconds, count = tokens + before, seconds + before_s, count + others
        groups.append((tokens, seconds, count))
    return [tokens / seconds for tokens, seconds, count in groups for _ in range(count)]


class Pricing(Protocol):
    """Buys rows, and gives their price."""

    def buy(self, offers: Sequence[Offer], rows: int, rounds: int, prefill: int = 0) -> list[int]:
        """Return how many of each offer's tokens, the first ones, to verify.

        The pass has `rows` rows and `prefill` more without them, and decides `rounds` rounds.
        """

    def passed(self, done: Pass, idle_s: float) -> None:
        """Learn from a pass, which began so many seconds after the one before ended."""

    def pass_s(self, rows: float, context: int) -> float:
        """Return the seconds of a pass over rows after so many tokens, 0 if nothing is known."""

    def price(self, sessions: int, context: int) -> Price:
        """Return what drafts cost where so many sessions, with so many tokens in all, share the
        passes.
        """


class Unpriced:
    """Buys everything."""

    def buy(self, offers: Sequence[Offer], rows: int, rounds: int, prefill: int = 0) -> list[int]:
        """Return the offers' lengths."""
        return [len(offer.expected) for offer in offers]

    def passed(self, done: Pass, idle_s: float) -> None:
        """Learn nothing."""

    def pass_s(self, rows: float, context: int) -> float:
        """Return 0."""
        return 0.0

    def price(self, sessions: int, context: int) -> Price:
        """Return that nothing is known."""
        return NO_PRICE


class Priced:
    """Buys the rows that raise a pass's expected tokens per second."""

    def __init__(self, costs: PassCosts) -> None:
        self._costs = costs
        self._idle_s = 0.0

    def buy(self, offers: Sequence[Offer], rows: int, rounds: int, prefill: int = 0) -> list[int]:
        """Return how many tokens of each offer to verify.

        The time between passes counts as part of the pass: with few sessions, nothing runs while
        drafts are made, and a pass that finds more tokens saves some of that.
        """
        fixed_s = self._idle_s + self._costs.beside_rows_s(0, rounds)
        fixed_s += self._costs.seconds(rows) - self._costs.seconds(rows + prefill)
        rows += prefill
        if len(offers) == 1:
            return [self._best(offers[0], rows, rounds, fixed_s)]
        owners = np.repeat(np.arange(len(offers)), [len(offer.expected) for offer in offers])
        expected = np.concatenate([np.asarray(offer.expected) for offer in offers])
        added = np.concatenate([np.asarray(offer.rows) for offer in offers])
        worth = expected
        if added.size and (added.min() < added.max() or any(each.beside_s for each in offers)):
            row_s = self._costs.row_s(rows, int(added.sum()))
            worth = np.concatenate([tokens_per_second(offer, row_s) for offer in offers])
        order = np.argsort(-worth, kind="stable")
        tokens = rounds + np.concatenate(([0.0], np.cumsum(expected[order])))
        more = np.concatenate(([0], np.cumsum(added[order])))
        # Each offer's first token has what any of them costs.
        beside = np.concatenate(
            [
                [offer.beside_s, *[0.0] * len(offer.expected)][: len(offer.expected)]
                for offer in offers
            ]
        )
        seconds = fixed_s + self._costs.curve(rows, int(more[-1]))[more]
        seconds[1:] += np.cumsum(beside[order])
        rates = tokens / seconds
        count = int(np.argmax(rates))
        if rates[count] < _WORTH * rates[0]:
            count = 0
        bought = np.bincount(owners[order[:count]], minlength=len(offers))
        return [int(each) for each in bought]

    def _best(self, offer: Offer, rows: int, rounds: int, fixed_s: float) -> int:
        """Return the same of one offer, whose tokens are in order already."""
        count, tokens = 0, float(rounds)
        plain = tokens / (fixed_s + self._costs.seconds(rows))
        most = plain
        fixed_s += offer.beside_s
        for number, (expected, added) in enumerate(
            zip(offer.expected, offer.rows, strict=True), start=1
        ):
            rows, tokens = rows + added, tokens + expected
            rate = tokens / (fixed_s + self._costs.seconds(rows))
            if rate > most:
                count, most = number, rate
        return count if most >= _WORTH * plain else 0

    def passed(self, done: Pass, idle_s: float) -> None:
        """Learn from a pass."""
        self._costs.observe(done)
        # A long pause is one without work, not one for a draft.
        idle_s = min(idle_s, done.seconds)
        self._idle_s += _IDLE_SHARE * (idle_s - self._idle_s)

    def pass_s(self, rows: float, context: int) -> float:
        """Return the seconds of a pass."""
        return self._costs.seconds(rows, context)

    def price(self, sessions: int, context: int) -> Price:
        """Return what drafts cost, a row as its share of those that all sessions would add.

        By the rows beside its own, a session would find drafts cheap whenever the others decode
        plainly, and so would all others in the same pass.
        """
        costs = self._costs
        return Price(
            sessions,
            costs.seconds(sessions, context, sessions),
            costs.row_s(sessions, sessions * _HORIZON),
            costs.draft_s,
        )
