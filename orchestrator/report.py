"""How speculation did: one record per round, folded into one report per request. Pure.

Sums reconcile: kept + correction + bonus + plain is the number of committed tokens, and the
histogram's counts and weighted counts are draft_rounds and num_accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from foredraft.types import NO_PRICE, Acceptance, Committed, Origin, Price, Proposal, Timings
from orchestrator.length.controllers import Cause


class DecodingMode(NamedTuple):
    """The acceptance rule, and how drafts are made: by a proposal, None for plain decoding, and
    before it of the text's n-grams. Or the target drafts so many tokens of a pass itself.
    """

    acceptance: Acceptance = Acceptance.COUPLED
    proposal: Proposal | None = None
    ngram: bool = False
    self_draft: int = 0


class Decision(NamedTuple):
    """The draft length that the controller chose, 0 for plain decoding, and the reason.

    cause is the reason's class, None where no controller was asked.
    """

    k: int
    reason: str
    cause: Cause | None = None


class Ahead(StrEnum):
    """Whether a round's next draft was requested ahead, and then whether for its outcome."""

    NO = "no"
    HIT = "hit"
    MISS = "miss"


class RoundClass(NamedTuple):
    """What rounds are counted by; reason is a Cause, or why there is no draft.

    off: the request wants none. no_drafter: none is attached. no_draft: the one asked for did not
    come.
    """

    verifier_led: bool
    reason: str
    ahead: Ahead


class RoundTrace(NamedTuple):
    """One round of a request's trace: why k, what was offered and bought of it, at which price.

    It committed `tokens` in so many of the target's passes: in fewer of them where the target
    drafted itself.
    """

    k: int
    reason: str
    offered: int
    bought: int
    accepted: int
    price: Price
    tokens: int
    passes: int


NO_DRAFT = Decision(0, "no draft was requested")
PLAIN = DecodingMode()


@dataclass(frozen=True, slots=True)
class RoundStats:
    """One round in numbers; times in seconds as the orchestrator saw them.

    decision is what the round's draft was requested by; num_draft_tokens counts the tokens that
    were offered for verification, 0 for a plain round, num_bought those that were verified, on
    depth levels, at this price; ngram is true where the draft was made of the text's n-grams,
    verifier_led where the verifier asked for it. ran_ahead is whether the next draft was requested
    meanwhile, hit whether for this outcome. The round began began_s after the request.
    """

    round: int
    num_draft_tokens: int
    num_accepted: int
    num_bought: int = 0
    depth: int = 0
    price: Price = NO_PRICE
    ngram: bool = False
    verifier_led: bool = False
    ran_ahead: bool = False
    hit: bool = False
    began_s: float = 0.0
    draft_wait_s: float = 0.0
    verify_s: float = 0.0
    verify_timings: Timings = field(default_factory=Timings)
    decision: Decision = NO_DRAFT


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """One request in numbers; times in seconds.

    trace has one entry for each round, rounds_by how many there were of each class. mat and
    accepted_histogram are over the draft_rounds, of which ngram_rounds had a draft of the text's
    n-grams, and exclude the bonus and the correction token; depths counts the draft rounds by how
    many tokens were accepted and on how many levels some were verified. target_passes counts the
    forward passes of a verifier that decided something. drafting_s is time spent waiting for drafts
    with nothing under verification, verifying_s for verdicts, of which computing_s went by in the
    rounds' own passes, waiting_s for anything else (opening, moving, a slow reader).
    """

    mode: DecodingMode
    trace: tuple[RoundTrace, ...]
    rounds_by: Mapping[RoundClass, int]
    rounds: int
    target_passes: int
    draft_rounds: int
    ngram_rounds: int
    num_draft_tokens: int
    num_bought_tokens: int
    origins: Mapping[Origin, int]
    accepted_histogram: Mapping[int, int]
    depths: Mapping[tuple[int, int], int]
    run_ahead_rounds: int
    run_ahead_hits: int
    verifier_moves: int
    drafter_attaches: int
    drafter_refusal: str | None
    drafting_s: float
    verifying_s: float
    computing_s: float
    waiting_s: float

    @property
    def tokens(self) -> int:
        """Committed tokens."""
        return sum(self.origins.values())

    @property
    def num_accepted(self) -> int:
        """Draft tokens that the target accepted."""
        return self.origins.get(Origin.KEPT, 0)

    @property
    def mat(self) -> float:
        """Mean accepted length per draft round, bonus and correction excluded."""
        return self.num_accepted / self.draft_rounds if self.draft_rounds else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Share of the verified draft tokens that was accepted."""
        return self.num_accepted / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def mean_k(self) -> float:
        """Mean number of draft tokens under verification per draft round."""
        return self.num_draft_tokens / self.draft_rounds if self.draft_rounds else 0.0

    @property
    def run_ahead_hit_rate(self) -> float:
        """Share of the rounds that were run ahead of whose outcome was a predicted one."""
        return self.run_ahead_hits / self.run_ahead_rounds if self.run_ahead_rounds else 0.0


@dataclass(slots=True)
class StatsAccumulator:
    """Folds rounds into a report."""

    mode: DecodingMode = PLAIN
    trace: list[RoundTrace] = field(default_factory=list)
    rounds_by: Counter[RoundClass] = field(default_factory=Counter)
    rounds: int = 0
    target_passes: int = 0
    draft_rounds: int = 0
    ngram_rounds: int = 0
    num_draft_tokens: int = 0
    num_bought_tokens: int = 0
    origins: Counter[Origin] = field(default_factory=Counter)
    histogram: Counter[int] = field(default_factory=Counter)
    depths: Counter[tuple[int, int]] = field(default_factory=Counter)
    run_ahead_rounds: int = 0
    run_ahead_hits: int = 0
    drafting_s: float = 0.0
    verifying_s: float = 0.0
    computing_s: float = 0.0

    def add(self, tokens: tuple[Committed, ...], stats: RoundStats) -> None:
        """Count one round."""
        self.rounds += 1
        passes = stats.verify_timings.passes
        self.target_passes += passes
        offered, bought = stats.num_draft_tokens, stats.num_bought
        k, reason, _ = stats.decision
        kept, price = stats.num_accepted, stats.price
        traced = RoundTrace(k, reason, offered, bought, kept, price, len(tokens), passes)
        self.trace.append(traced)
        self.rounds_by[self._class(stats)] += 1
        self.num_bought_tokens += bought
        self.origins.update(token.origin for token in tokens)
        self.run_ahead_rounds += stats.ran_ahead
        self.run_ahead_hits += stats.hit
        self.drafting_s += stats.draft_wait_s
        self.verifying_s += stats.verify_s
        self.computing_s += stats.verify_timings.compute_us / 1e6
        if stats.num_draft_tokens:
            self.draft_rounds += 1
            self.ngram_rounds += stats.ngram
            self.num_draft_tokens += stats.num_draft_tokens
            self.histogram[stats.num_accepted] += 1
            self.depths[stats.num_accepted, stats.depth] += 1

    def _class(self, stats: RoundStats) -> RoundClass:
        ahead = Ahead.HIT if stats.hit else Ahead.MISS if stats.ran_ahead else Ahead.NO
        cause = stats.decision.cause
        if cause is None:
            reason = "off" if self.mode.proposal is None else "no_drafter"
        else:
            reason = "no_draft" if stats.decision.k and not stats.num_draft_tokens else str(cause)
        return RoundClass(stats.verifier_led, reason, ahead)

    def report(
        self,
        total_s: float,
        verifier_moves: int,
        drafter_attaches: int,
        drafter_refusal: str | None = None,
    ) -> SpeculationReport:
        """Return the report of a request that took total_s seconds so far."""
        return SpeculationReport(
            mode=self.mode,
            trace=tuple(self.trace),
            rounds_by=dict(self.rounds_by),
            rounds=self.rounds,
            target_passes=self.target_passes,
            draft_rounds=self.draft_rounds,
            ngram_rounds=self.ngram_rounds,
            num_draft_tokens=self.num_draft_tokens,
            num_bought_tokens=self.num_bought_tokens,
            origins=dict(self.origins),
            accepted_histogram=dict(self.histogram),
            depths=dict(self.depths),
            run_ahead_rounds=self.run_ahead_rounds,
            run_ahead_hits=self.run_ahead_hits,
            verifier_moves=verifier_moves,
            drafter_attaches=drafter_attaches,
            drafter_refusal=drafter_refusal,
            drafting_s=self.drafting_s,
            verifying_s=self.verifying_s,
            computing_s=self.computing_s,
            waiting_s=max(0.0, total_s - self.drafting_s - self.verifying_s),
        )
