"""Runs of a scenario under one setting after the other, side by side where there are processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import NamedTuple

from foredraft_simulator.outcome import Outcome, percentile
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.simulate import simulate
from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.tune.figures import Figures
from foredraft_simulator.tune.run import Change, Run
from foredraft_simulator.tune.space import Setting


class Job(NamedTuple):
    """What is the same in all runs."""

    scenario: Scenario
    arrivals: Sequence[Arrival]
    seed: int
    percent: float

    def run(self, setting: Setting) -> Run:
        """Return the run under a setting, as far as it is compared."""
        return run_of(self.outcome(setting), self.scenario, self.percent)

    def outcome(self, setting: Setting) -> Outcome:
        """Return the run under a setting."""
        scenario = self.scenario
        pools = {
            name: getattr(scenario, name).model_copy(update={"autoscaling": bounds})
            for name, bounds in (("drafter", setting.drafters), ("verifier", setting.verifiers))
        }
        changed = scenario.model_copy(update={**pools, "scaling": setting.scaling})
        return simulate(changed, self.arrivals, self.seed)


def run_of(outcome: Outcome, scenario: Scenario, percent: float) -> Run:
    """Return an outcome as it is compared."""
    seconds = {name: pool.replica_seconds for name, pool in outcome.pools.items()}
    changes = tuple(
        Change(each.time_s, each.pool, each.before, each.target, each.line)
        for each in outcome.decisions
        if each.before != each.target
    )
    span = max(outcome.seconds, 1e-9)
    figures = Figures(
        cost=outcome.cost / scenario.verifier.price / 3600,
        ttft_s=percentile(outcome.ttfts_s, percent),
        tpot_s=percentile(outcome.tpots_s, percent),
        verifiers=seconds["verifier"] / span,
        drafters=seconds["drafter"] / span,
        decisions_h=3600 * len(changes) / span,
        tokens_s=outcome.throughput,
        failed=outcome.errors,
    )
    sizes = {
        name: (*((each.time_s, each.paid) for each in pool.sizes), (span, pool.sizes[-1].paid))
        for name, pool in outcome.pools.items()
    }
    return Run(figures, sizes["verifier"], sizes["drafter"], changes)


class Runner:
    """Runs settings, `at_once` of them side by side; report() follows each run."""

    def __init__(self, job: Job, at_once: int, report: Callable[[], None]) -> None:
        self._job, self._report = job, report
        # Not a fork: torch's threads do not survive one.
        self._pool = None
        if at_once > 1:
            self._pool = ProcessPoolExecutor(at_once, mp_context=get_context("spawn"))

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, settings: Sequence[Setting]) -> list[Run]:
        """Return the runs in the order of their settings."""
        runs = self._pool.map if self._pool is not None else map
        found = []
        for run in runs(self._job.run, settings):
            self._report()
            found.append(run)
        return found
