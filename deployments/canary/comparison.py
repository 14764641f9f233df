"""Whether a new drafter is as good as the old one: a sequential test on two ratios. Pure.

Sessions are drawn at random into two arms. Each arm has two ratios of sums over its sessions:
accepted tokens per round, and tokens per second. Their relative difference gets an interval by the
delta method (a session is one cluster, its rounds are not independent), at looks at m, 2m, 4m, ...
sessions of the smaller arm. Look j spends alpha / ((j + 1) (j + 2)) of the error, which is alpha in
all however many looks there are, and each ratio half of that.
"""

from __future__ import annotations

import math
from enum import StrEnum
from statistics import NormalDist
from typing import NamedTuple

from pydantic import Field, model_validator

from foredraft.strict import StrictModel


class ComparisonConfig(StrictModel):
    """When a canary is promoted or rolled back."""

    min_sessions: int = Field(
        default=50, ge=10, description="Sessions of each arm at the first look; twice as many each."
    )
    max_sessions: int = Field(
        default=1600,
        ge=10,
        description="Sessions of each arm after which a canary without a decision is rolled back.",
    )
    margin: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="Share by which both ratios may be smaller: a canary surely within it is "
        "promoted, one surely beyond it in either ratio is rolled back.",
    )
    error: float = Field(default=0.02, gt=0, lt=0.5, description="Probability of a wrong decision.")

    @model_validator(mode="after")
    def _ordered(self) -> ComparisonConfig:
        if self.max_sessions < self.min_sessions:
            raise ValueError("max_sessions must be at least min_sessions")
        return self


class Sums(NamedTuple):
    """Sums over sessions that have a part (x) and a whole (y) each: for the ratio x / y."""

    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    def of(self, x: float, y: float) -> Sums:
        """Return the sums with one more session."""
        return Sums(
            self.n + 1,
            self.x + x,
            self.y + y,
            self.xx + x * x,
            self.xy + x * y,
            self.yy + y * y,
        )

    def plus(self, other: Sums) -> Sums:
        """Return the sums over both's sessions."""
        n, *sums = (a + b for a, b in zip(self, other, strict=True))
        return Sums(int(n), *sums)

    @property
    def ratio(self) -> float:
        """The ratio, 0 without a whole."""
        return self.x / self.y if self.y else 0.0

    @property
    def variance(self) -> float:
        """The variance of the ratio, by the delta method; infinite for less than two sessions."""
        if self.n < 2 or not self.y:
            return math.inf
        rest = self.xx - 2 * self.ratio * self.xy + self.ratio**2 * self.yy
        return max(0.0, rest) * self.n / ((self.n - 1) * self.y**2)


class Arm(NamedTuple):
    """What an arm's sessions came to: accepted tokens per round, tokens per second."""

    accepted: Sums = Sums()
    speed: Sums = Sums()

    def of(self, accepted: int, rounds: int, tokens: int, seconds: float) -> Arm:
        """Return the arm with one more session."""
        return Arm(self.accepted.of(accepted, rounds), self.speed.of(tokens, seconds))

    def plus(self, other: Arm) -> Arm:
        """Return both's sessions as one arm."""
        return Arm(self.accepted.plus(other.accepted), self.speed.plus(other.speed))


class Outcome(StrEnum):
    """What becomes of a canary."""

    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"


class Verdict(NamedTuple):
    """The outcome and its reason."""

    outcome: Outcome
    reason: str


class Interval(NamedTuple):
    """The relative difference of a ratio between canary and stable, and its bounds."""

    difference: float
    low: float
    high: float


def look_at(stable: Arm, canary: Arm, config: ComparisonConfig) -> int | None:
    """Return the number of the look that the sessions so far suffice for, None before the first."""
    sessions = min(stable.speed.n, canary.speed.n)
    if sessions < config.min_sessions:
        return None
    return int(math.log2(sessions / config.min_sessions))


def verdict_at(look: int, stable: Arm, canary: Arm, config: ComparisonConfig) -> Verdict | None:
    """Return the verdict of a look, None where there is none yet."""
    spent = config.error / ((look + 1) * (look + 2))
    deviations = NormalDist().inv_cdf(1 - spent / 4)
    names = ("accepted tokens per round", "tokens per second")
    intervals = [
        interval(one, other, deviations) for one, other in zip(stable, canary, strict=True)
    ]
    reasons = [
        f"{name} {other.ratio:.3g} against {one.ratio:.3g} ({found.difference:+.0%}, between "
        f"{found.low:+.0%} and {found.high:+.0%})"
        for name, one, other, found in zip(names, stable, canary, intervals, strict=True)
    ]
    sessions = f"after {canary.speed.n} sessions beside {stable.speed.n}"
    for reason, found in zip(reasons, intervals, strict=True):
        if found.high < -config.margin:
            return Verdict(Outcome.ROLLED_BACK, f"{reason} {sessions}")
    if all(found.low > -config.margin for found in intervals):
        return Verdict(Outcome.PROMOTED, f"{', '.join(reasons)} {sessions}")
    if min(stable.speed.n, canary.speed.n) >= config.max_sessions:
        reason = f"no decision {sessions}: {', '.join(reasons)}"
        return Verdict(Outcome.ROLLED_BACK, reason)
    return None


def interval(stable: Sums, canary: Sums, deviations: float) -> Interval:
    """Return the interval of (canary - stable) / stable, so many standard deviations wide."""
    if not stable.ratio:
        return Interval(0.0, -math.inf, math.inf)
    relative = canary.ratio / stable.ratio
    width = deviations * math.sqrt(canary.variance + relative**2 * stable.variance) / stable.ratio
    return Interval(relative - 1, relative - 1 - width, relative - 1 + width)
