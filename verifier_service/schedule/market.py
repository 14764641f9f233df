"""The sessions' side of pricing: what they offer before a pass, and what they learn after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp

from foredraft.types import NO_PRICE, Price
from verifier_service.schedule.batching import ScheduledRows
from verifier_service.schedule.costs import Pass
from verifier_service.schedule.pricing import Offer, Pricing
from verifier_service.targets.session import Session

Sessions = Mapping[int, Session]

# A session without a round under way takes part in the passes until it missed so many.
_ACTIVE_PASSES = 8
# Rounds of plain decoding take several passes, and what they take is kept apart by whether any
# session drafted meanwhile.
_CALM_PASSES = 16
# For how many seconds a session that ended counts among those of a price, less and less: between
# two requests of its client the others are not alone, and would pay for a draft that they cannot
# use.
_MEMORY_S = 0.5


@dataclass(slots=True)
class PassCounts:
    """Sums over all passes so far: their seconds and rows, the draft tokens of the rounds that they
    decided, and those that sessions drafted themselves and verified, and kept.
    """

    passes: int = 0
    seconds: float = 0.0
    rows: int = 0
    offered: int = 0
    bought: int = 0
    own_bought: int = 0
    own_kept: int = 0


class Market:
    """Trades the rows of one engine's passes; keys name sessions.

    price is what a draft costs, after the last pass; prefill_s is how much longer that one took for
    the prompts that it read.
    """

    def __init__(self, pricing: Pricing, prefill_rows: int, now: float) -> None:
        self._pricing = pricing
        self._prefill_rows = prefill_rows
        self._passes = 0
        self._began = self._ended = now
        # Of the last pass: the tokens of the texts of the sessions that take part.
        self._context = 0
        # How many take part, and did until a moment ago.
        self._sessions = 0.0
        # Of the last passes: how many sessions drafted.
        self._drafting: deque[int] = deque(maxlen=_CALM_PASSES)
        self.price = NO_PRICE
        self.prefill_s = 0.0
        self.counts = PassCounts()

    def buy(self, sessions: Sessions, waiting: Collection[int]) -> None:
        """Choose how much of each draft the next pass verifies; waiting sessions are not in it."""
        offers: list[Offer] = []
        rows = rounds = prefill = 0
        for key, session in sessions.items():
            if key in waiting:
                continue
            pending = session.pending_rows(key)
            prefill += pending.prefill
            if pending.prefill or not pending.decide:
                continue
            rounds += 1
            offer = session.offer(key)
            rows += pending.decide if offer is None else session.undrafted_rows
            if offer is not None:
                offers.append(offer)
        if not offers:
            return
        counts = self._pricing.buy(offers, rows, rounds, min(prefill, self._prefill_rows))
        for offer, count in zip(offers, counts, strict=True):
            sessions[offer.key].buy(count)

    def passed(
        self, sessions: Sessions, scheduled: Sequence[ScheduledRows], started: float, ended: float
    ) -> None:
        """Learn from a pass, before what it decided is committed."""
        self._passes += 1
        rows = prefill = context = drafted = 0
        for part in scheduled:
            session = sessions[part.key]
            session.last_pass = self._passes
            rows += part.rows
            context += session.cached
            if session.needs_prefill:
                prefill += part.rows - session.num_round_rows(part)
            if part.decides and session.offers_draft:
                drafted += 1
                self.counts.offered += session.num_offered
                self.counts.bought += session.num_bought
        since = self._passes - _ACTIVE_PASSES
        active = [s for s in sessions.values() if s.pending is not None or s.last_pass > since]
        drafting = sum(s.drafted or s.offers_draft for s in active)
        self._drafting.append(drafting)
        self.prefill_s = self._prefill_s(rows, prefill, context, ended - started)
        if not prefill:
            seconds, beside_drafts, alone = ended - started, drafting > 0, len(active) == 1
            done = Pass(rows, context, seconds, beside_drafts, drafted, len(scheduled), alone)
            self._pricing.passed(done, started - self._ended)
        self.counts.passes += 1
        self.counts.seconds += ended - started
        self.counts.rows += rows
        kept = exp((self._ended - ended) / _MEMORY_S)
        self._sessions = max(len(active), len(active) + kept * (self._sessions - len(active)))
        self._began, self._ended = started, ended
        self._context = sum(s.cached for s in active)
        self.price = self._priced(len(active))

    def prefill_since(self, moment: float) -> float:
        """Return how much of prefill_s was after a moment."""
        took_s = max(1e-9, self._ended - self._began)
        return self.prefill_s * min(1.0, max(0.0, (self._ended - moment) / took_s))

    def _prefill_s(self, rows: int, prefill: int, context: int, seconds: float) -> float:
        """Return how many of a pass's seconds it took for prefill rows, 0 if that is not known."""
        if not prefill or rows == prefill:
            return seconds if prefill else 0.0
        without_s = self._pricing.pass_s(rows - prefill, context)
        return max(0.0, seconds - without_s) if without_s else 0.0

    def pass_s(self, rows: float) -> float:
        """Return the seconds of a pass over rows, after texts like the last one's."""
        return self._pricing.pass_s(rows, self._context)

    def _priced(self, active: int) -> Price:
        sessions = round(self._sessions)
        price = self._pricing.price(sessions, self._context * sessions // max(1, active))
        drafting = max(self._drafting, default=0)
        return NO_PRICE if price == NO_PRICE else price._replace(drafting=drafting)
