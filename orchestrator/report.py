"""How speculation did: one record per round, folded into one report per request. Pure.

Sums reconcile: kept + correction + bonus + plain is the number of committed tokens, and the
histogram's counts and weighted counts are draft_rounds and kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from foredraft.types import Acceptance, Committed, Origin, Proposal, Timings


class How(NamedTuple):
    """The rule that decides what is kept, and how drafts are made; None for plain decoding."""

    acceptance: Acceptance = Acceptance.COUPLED
    proposal: Proposal | None = None


class Decision(NamedTuple):
    """The draft length that the controller chose, 0 for plain decoding, and why."""

    length: int
    why: str


NO_DRAFT = Decision(0, "no draft was asked for")
PLAIN = How()


@dataclass(frozen=True, slots=True)
class RoundStats:
    """One round in numbers; times in seconds as the orchestrator saw them.

    decision is what the round's draft was asked by. drafted counts the tokens under verification, 0
    for a plain round. ran_ahead says whether the next block was being drafted meanwhile, hit
    whether the outcome was the one drafted for.
    """

    round: int
    drafted: int
    kept: int
    ran_ahead: bool = False
    hit: bool = False
    draft_wait_s: float = 0.0
    verify_s: float = 0.0
    verify_timings: Timings = field(default_factory=Timings)
    decision: Decision = NO_DRAFT


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """One request in numbers; times in seconds.

    decisions has one entry for each round. mat and accepted_histogram are over the rounds that
    had a draft, and exclude the bonus and the correction token. drafting_s is time spent waiting
    for drafts with nothing under verification, verifying_s for verdicts, of which computing_s went
    by in the rounds' own passes, waiting_s for anything else (opening, moving, a slow reader).
    """

    how: How
    decisions: tuple[Decision, ...]
    rounds: int
    draft_rounds: int
    drafted: int
    origins: Mapping[Origin, int]
    accepted_histogram: Mapping[int, int]
    run_ahead_asked: int
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
    def kept(self) -> int:
        """Drafted tokens that the target kept."""
        return self.origins.get(Origin.KEPT, 0)

    @property
    def mat(self) -> float:
        """Mean accepted length per draft round, bonus and correction excluded."""
        return self.kept / self.draft_rounds if self.draft_rounds else 0.0

    @property
    def kept_per_drafted(self) -> float:
        """Share of the verified draft tokens that was kept."""
        return self.kept / self.drafted if self.drafted else 0.0

    @property
    def mean_k(self) -> float:
        """Mean number of draft tokens under verification per draft round."""
        return self.drafted / self.draft_rounds if self.draft_rounds else 0.0

    @property
    def run_ahead_hit_rate(self) -> float:
        """Share of the run-ahead requests whose predicted outcome came true."""
        return self.run_ahead_hits / self.run_ahead_asked if self.run_ahead_asked else 0.0


@dataclass(slots=True)
class Tally:
    """Folds rounds into a report."""

    how: How = PLAIN
    decisions: list[Decision] = field(default_factory=list)
    rounds: int = 0
    draft_rounds: int = 0
    drafted: int = 0
    origins: Counter[Origin] = field(default_factory=Counter)
    histogram: Counter[int] = field(default_factory=Counter)
    run_ahead_asked: int = 0
    run_ahead_hits: int = 0
    drafting_s: float = 0.0
    verifying_s: float = 0.0
    computing_s: float = 0.0

    def add(self, tokens: tuple[Committed, ...], stats: RoundStats) -> None:
        """Count one round."""
        self.rounds += 1
        self.decisions.append(stats.decision)
        self.origins.update(token.origin for token in tokens)
        self.run_ahead_asked += stats.ran_ahead
        self.run_ahead_hits += stats.hit
        self.drafting_s += stats.draft_wait_s
        self.verifying_s += stats.verify_s
        self.computing_s += stats.verify_timings.compute_us / 1e6
        if stats.drafted:
            self.draft_rounds += 1
            self.drafted += stats.drafted
            self.histogram[stats.kept] += 1

    def report(
        self,
        total_s: float,
        verifier_moves: int,
        drafter_attaches: int,
        drafter_refusal: str | None = None,
    ) -> SpeculationReport:
        """Return the report of a request that took total_s seconds so far."""
        return SpeculationReport(
            how=self.how,
            decisions=tuple(self.decisions),
            rounds=self.rounds,
            draft_rounds=self.draft_rounds,
            drafted=self.drafted,
            origins=dict(self.origins),
            accepted_histogram=dict(self.histogram),
            run_ahead_asked=self.run_ahead_asked,
            run_ahead_hits=self.run_ahead_hits,
            verifier_moves=verifier_moves,
            drafter_attaches=drafter_attaches,
            drafter_refusal=drafter_refusal,
            drafting_s=self.drafting_s,
            verifying_s=self.verifying_s,
            computing_s=self.computing_s,
            waiting_s=max(0.0, total_s - self.drafting_s - self.verifying_s),
        )
