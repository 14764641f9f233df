"""A canary on trial: what all ingress replicas saw of both arms, and what becomes of it.

Each replica publishes the sums of its own sessions, and whoever claims a look first decides on all
of them. The cluster keeps the verdict: a file that is deployed again is not tried again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from deployments.canary.arms import CANARY, STABLE
from deployments.canary.comparison import Arm, Outcome, Sums, Verdict, look_at, verdict_at
from deployments.canary.config import CanaryConfig
from deployments.observability.metrics import Sample
from orchestrator.report import SpeculationReport

_OUTCOMES = {None: 0.0, Outcome.PROMOTED: 1.0, Outcome.ROLLED_BACK: -1.0}


class Board(Protocol):
    """What the whole cluster remembers, by name."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a value, in place of what was kept."""

    def get(self, name: str) -> bytes | None:
        """Return what is kept under a name, None for nothing."""

    def claim(self, name: str, value: bytes = b"") -> bool:
        """Keep a value unless there is one already; return whether there was none."""

    def below(self, prefix: str) -> list[bytes]:
        """Return all that is kept under names that begin so."""


class Trial:
    """One ingress replica's part in a trial; key names the trial, instance the replica."""

    def __init__(self, key: str, config: CanaryConfig, board: Board, instance: str) -> None:
        self.key = key
        self._config, self._board, self._instance = config, board, instance
        self._began_at: float | None = None
        self._looked = -1
        self._own = {STABLE: Arm(), CANARY: Arm()}
        self._arms = dict(self._own)
        self.running = False
        self.verdict: Verdict | None = None

    @property
    def share(self) -> float:
        """Share of the sessions that the canary drafts for: none before it runs, or rolled back."""
        back = self.verdict is not None and self.verdict.outcome is Outcome.ROLLED_BACK
        return self._config.share if self.running and not back else 0.0

    def end(self) -> None:
        """Leave the trial: its configuration is gone."""
        self.running = False

    def ended(self, arm: str, report: SpeculationReport, seconds: float) -> None:
        """Count a session that ended, if drafts were wanted for it while the canary ran."""
        if self.running and report.mode.proposal is not None and report.rounds:
            self._own[arm] = self._own[arm].of(
                report.num_accepted, report.rounds, report.tokens, seconds
            )

    def step(self, now: float, running: bool) -> Verdict | None:
        """Publish what was seen, and see what others did; return a verdict that is given here.

        now is in seconds; running is true where a replica of the canary has begun to run.
        """
        self._began_at = now if self._began_at is None else self._began_at
        self.verdict = verdict_of(self._board, self.key)
        self.running |= running
        if self.verdict is not None:
            return None
        if not self.running:
            waited = now - self._began_at
            if waited < self._config.start_s:
                return None
            return self._given(
                Verdict(Outcome.ROLLED_BACK, f"no replica of it ran within {waited:.0f} s")
            )
        self._publish(now)
        stable, canary = self._arms[STABLE], self._arms[CANARY]
        look = look_at(stable, canary, self._config.comparison)
        if look is None or look <= self._looked:
            return None
        self._looked = look
        if not self._board.claim(f"{self.key}:look:{look}"):
            return None
        found = verdict_at(look, stable, canary, self._config.comparison)
        return None if found is None else self._given(found)

    def _given(self, verdict: Verdict) -> Verdict | None:
        kept = json.dumps(verdict._asdict()).encode()
        if not self._board.claim(_verdict_key(self.key), kept):
            return None
        self.verdict = verdict
        return verdict

    def _publish(self, now: float) -> None:
        prefix = f"{self.key}:sums:"
        self._board.put(prefix + self._instance, json.dumps(self._own).encode())
        arms = {STABLE: Arm(), CANARY: Arm()}
        for each in self._board.below(prefix):
            for name, (accepted, speed) in json.loads(each).items():
                arms[name] = arms[name].plus(Arm(Sums(*accepted), Sums(*speed)))
        self._arms = arms

    def described(self) -> dict[str, Any]:
        """Return the trial for people: its share, both arms, and its verdict if there is one."""
        return {
            "share": self.share,
            "outcome": None if self.verdict is None else self.verdict.outcome,
            "reason": "" if self.verdict is None else self.verdict.reason,
            "arms": {name: _described(arm) for name, arm in self._arms.items()},
        }

    def samples(self) -> Iterator[Sample]:
        """Yield the trial as metrics."""
        outcome = None if self.verdict is None else self.verdict.outcome
        yield Sample("foredraft_canary_share", self.share)
        yield Sample("foredraft_canary_outcome", _OUTCOMES[outcome])
        for name, arm in self._arms.items():
            for metric, value in _described(arm).items():
                yield Sample(f"foredraft_canary_{metric}", value, {"arm": name})


def verdict_of(board: Board, key: str) -> Verdict | None:
    """Return the verdict on a trial, None if there is none."""
    kept = board.get(_verdict_key(key))
    if kept is None:
        return None
    found = json.loads(kept)
    return Verdict(Outcome(found["outcome"]), found["reason"])


def _verdict_key(key: str) -> str:
    return f"{key}:verdict"


def _described(arm: Arm) -> Mapping[str, float]:
    return {
        "sessions": arm.speed.n,
        "accepted_per_round": arm.accepted.ratio,
        "tokens_per_second": arm.speed.ratio,
    }
