"""A recorded ramp in the simulator: are the same decisions made, in the same order, when?

`python -m bench.ramp.replay` takes what `foredraft bench ramp` wrote: configuration, arrivals,
decisions, how long replicas took to start, and the drafts with their accepted tokens, from which
the acceptance of a token is found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, NamedTuple

import typer

from bench.ramp.run import Change
from deployments.autoscaling.config import ScalingConfig
from deployments.autoscaling.signals import PoolName
from foredraft.errors import ConfigError
from foredraft.strict import parse
from foredraft_simulator.outcome import Outcome
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.simulate import simulate
from foredraft_simulator.traces.arrival import Arrival

RECORDED = Path(__file__).parents[1] / "results" / "ramp.json"

# Keys of a service that the simulated pool has, too.
_DRAFTER = ("max_sessions", "branch_slots")
_VERIFIER = ("kv_tokens", "prefix_cache_tokens", "max_sessions", "row_budget", "prefill_rows")


# A replica's signals are read every two seconds, and are sent on every two.
STEP_S = 4.0
# Halvings of the interval of acceptance.
_HALVINGS = 20


class Compared(NamedTuple):
    """A decision of the recorded run beside the simulated one in its place, each None for none."""

    real: Change | None
    simulated: Change | None

    @property
    def first(self) -> Change:
        """The real one, else the simulated one."""
        found = self.real or self.simulated
        assert found is not None
        return found

    @property
    def same(self) -> bool:
        """Whether both change the same pool in the same way."""
        if self.real is None or self.simulated is None:
            return False
        return self.real[1:4] == self.simulated[1:4]

    @property
    def apart_s(self) -> float | None:
        """How much later the simulated one is, None for a missing one."""
        if self.real is None or self.simulated is None:
            return None
        return self.simulated.at_s - self.real.at_s


def starts_s(recorded: Mapping[str, Any]) -> dict[str, float]:
    """Return how long a pool's replicas took from the decision until they served, on average.

    Raise ValueError for a pool that never grew.
    """
    found = {}
    for pool in PoolName:
        took = [
            next(
                served["at_s"] - change["at_s"]
                for served in recorded["serving"]
                if served["pool"] == pool
                and served["at_s"] > change["at_s"]
                and served["replicas"] >= change["target"]
            )
            for change in recorded["changes"]
            if change["pool"] == pool and change["target"] > change["before"]
        ]
        if not took:
            raise ValueError(f"no {pool} was ever started")
        found[str(pool)] = mean(took)
    return found


def scenario_of(
    configuration: Mapping[str, Any], cold: Mapping[str, float], settle_s: float
) -> Scenario:
    """Return what a Serve file's application is in the simulator, given how long starts take."""
    [entry] = configuration["applications"]
    args = entry["args"]
    values: dict[str, Any] = {
        "name": "ramp",
        "orchestrator": args["orchestrator"],
        "scaling": parse(ScalingConfig, entry["autoscaling_policy"]["policy_kwargs"]).model_dump(),
        "settle_s": settle_s,
    }
    for pool, keys in (("drafter", _DRAFTER), ("verifier", _VERIFIER)):
        service = args[pool]["service"]
        values[pool] = {key: service[key] for key in keys if key in service}
        values[pool] |= {
            "pace": service["pace"],
            "autoscaling": args[pool]["autoscaling"],
            "drain_s": args[pool]["drain_s"],
            "cold_start_s": cold[pool],
        }
    return parse(Scenario, values)


def arrivals_of(recorded: Mapping[str, Any]) -> list[Arrival]:
    """Return the recorded requests, as long as they became."""
    pairs = zip(recorded["arrivals"], recorded["answers"], strict=True)
    return [Arrival(a["at_s"], a["prompt_tokens"], max(1, b["tokens"])) for a, b in pairs]


def replayed(scenario: Scenario, arrivals: Sequence[Arrival], rate: float, seed: int) -> Outcome:
    """Return the simulation with drafts of an acceptance rate."""
    acceptance = scenario.acceptance.model_copy(update={"rates": (rate,)})
    return simulate(scenario.model_copy(update={"acceptance": acceptance}), arrivals, seed)


def rate_of(recorded: Mapping[str, Any]) -> float:
    """Return the acceptance of a token after accepted ones with which drafts have as many accepted
    as they had: of k tokens r + r^2 + ... + r^k.
    """
    drafts, drafted, accepted = (
        sum(each[key] for each in recorded["answers"]) for key in ("drafts", "drafted", "accepted")
    )
    k, mean_accepted = round(drafted / drafts), accepted / drafts
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        few = sum(rate**depth for depth in range(1, k + 1)) < mean_accepted
        low, high = (rate, high) if few else (low, rate)
    return (low + high) / 2


def mean_s(outcome: Outcome) -> float:
    """Return the mean time of the simulated requests."""
    return mean(
        each.last_s - each.arrived_s for each in outcome.requests if each.last_s is not None
    )


def compared(real: Sequence[Change], outcome: Outcome) -> list[Compared]:
    """Return the changes of both runs, a pool's first beside its first, in the real one's order."""
    made = [
        Change(round(each.time_s, 2), each.pool, each.before, each.target, each.wish, each.line)
        for each in outcome.decisions
        if each.before != each.target
    ]
    pairs = [
        Compared(*pair)
        for pool in PoolName
        for pair in zip_longest(*([one for one in run if one.pool == pool] for run in (real, made)))
    ]
    return sorted(pairs, key=lambda each: each.first.at_s)


def in_order(found: Sequence[Compared]) -> bool:
    """Return whether the same changes were made in the same order.

    What the real run did within one step, either pool may have done first.
    """
    if not all(each.same for each in found):
        return False
    times = [
        (each.real.at_s, each.simulated.at_s) for each in found if each.real and each.simulated
    ]
    pairs = ((one, other) for at, one in enumerate(times) for other in times[at + 1 :])
    return all(one[1] < other[1] for one, other in pairs if other[0] - one[0] > STEP_S)


def as_markdown(found: Sequence[Compared]) -> str:
    """Return the decisions as a table."""

    def row(each: Compared) -> str:
        first = each.first
        real = "" if each.real is None else f"{each.real.at_s:.1f}"
        made = "" if each.simulated is None else f"{each.simulated.at_s:.1f}"
        apart = "" if each.apart_s is None else f"{each.apart_s:+.1f}"
        same = "yes" if each.same else "no"
        change = f"{first.before} -> {first.target}"
        return f"| {first.pool} | {change} | {real} | {made} | {apart} | {same} |"

    head = ["| pool | replicas | real, s | simulated, s | later by, s | same |"]
    head.append("|---|---|--:|--:|--:|---|")
    return "\n".join([*head, *map(row, found)]) + "\n"


app = typer.Typer(add_completion=False)


@app.command()
def main(
    file: Annotated[Path, typer.Argument(help="What `foredraft bench ramp` wrote.")] = RECORDED,
    seeds: Annotated[int, typer.Option(min=1, help="Simulations, each with another luck.")] = 5,
) -> None:
    """Compare a recorded ramp's decisions with simulated ones; exit 1 where none is the same."""
    try:
        recorded = json.loads(file.read_text())
        real = [Change(**each) for each in recorded["changes"]]
        arrivals = arrivals_of(recorded)
        last_s = real[-1].at_s if real else 0.0
        settle_s = max(0.0, last_s - arrivals[-1].time_s) + 30
        scenario = scenario_of(recorded["configuration"], starts_s(recorded), settle_s)
        rate = rate_of(recorded)
        real_s = mean([each["seconds"] for each in recorded["answers"]])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, StopIteration) as error:
        raise ConfigError(f"{file}: no recorded ramp: {error!r}", param="file") from None
    same = 0
    starts = ", ".join(f"a {pool} in {took:.1f} s" for pool, took in starts_s(recorded).items())
    typer.echo(f"acceptance {rate:.2f}; {starts}\n")
    for seed in range(seeds):
        outcome = replayed(scenario, arrivals, rate, seed)
        found = compared(real, outcome)
        same += in_order(found)
        typer.echo(f"seed {seed}: a request takes {mean_s(outcome):.1f} s, really {real_s:.1f} s\n")
        typer.echo(as_markdown(found))
    typer.echo(f"the same decisions in the same order with {same} of {seeds} seeds")
    if not same:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
