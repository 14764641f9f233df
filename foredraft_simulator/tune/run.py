"""A policy's run over a trace, as far as it is compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foredraft_simulator.tune.figures import Figures
from foredraft_simulator.tune.search import Trial
from foredraft_simulator.tune.space import PolicyName


class Change(NamedTuple):
    """A decision that changed a pool's size: when, from what to what, and why."""

    time_s: float
    pool: str
    before: int
    target: int
    reason: str


class Run(NamedTuple):
    """The figures of a run, each pool's sizes as (time, replicas), and the decisions."""

    figures: Figures
    verifiers: Sequence[tuple[float, int]]
    drafters: Sequence[tuple[float, int]]
    changes: Sequence[Change]


class Tuned(NamedTuple):
    """What was found for a policy: all trials, the best first, and the run of the best."""

    policy: PolicyName
    trials: Sequence[Trial]
    best: Run
