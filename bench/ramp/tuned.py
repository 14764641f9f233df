"""A tuned load on a real cluster: each policy's cost there, beside the simulated one.

`python -m bench.ramp.tuned` takes the paced pair of `foredraft bench ramp` with verifiers of less
KV, so that the peak of its load needs two. Each policy's parameters are searched in the simulator,
as `foredraft tune` does, with the starts and the acceptance of the recorded ramp; then each runs
with them on a real Ray Serve.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer
import yaml

from bench.commands.report import write
from bench.load.points import percentile
from bench.ramp.arrivals import Phase, arrivals
from bench.ramp.replay import RECORDED, rate_of, scenario_of, starts_s
from bench.ramp.run import Ramp, RampPlan, measure
from deployments.autoscaling.signals import PoolName
from deployments.config import RAMP_FILE, ServeFile, read
from foredraft_simulator.scenario.scenario import Scenario
from foredraft_simulator.traces.arrival import Arrival
from foredraft_simulator.tune.evaluate import Job, Runner
from foredraft_simulator.tune.figures import Limits
from foredraft_simulator.tune.run import Change
from foredraft_simulator.tune.serve_file import written
from foredraft_simulator.tune.space import POLICIES, PolicyName, Setting
from foredraft_simulator.tune.tuning import Tuner, base_setting

# A day in three minutes: its peak takes two verifiers, morning and evening one.
DAY = (
    Phase(0.2, 40),
    Phase(0.8, 20),
    Phase(1.6, 15),
    Phase(2.4, 25),
    Phase(1.2, 15),
    Phase(0.2, 75),
)
PLAN = RampPlan(phases=DAY, rest_s=30)
# Sessions of 256 tokens: nine.
_KV_TOKENS = 2304
# What a drafter costs of a verifier, as in the scenario l40s.
_PRICE = 0.43
LIMITS = Limits(ttft_s=6.0, tpot_s=0.08)

# What counts of a change of either kind of run: a pool, from when on, and how many.
Step = tuple[float, str, int]


class Outcome(NamedTuple):
    """A run of a policy: replica-seconds at a verifier's price, and the 99th percentile of a
    request's seconds for each of its tokens.
    """

    cost_s: float
    token_s: float


class Row(NamedTuple):
    """A policy's simulated and real run; how many texts are plain decoding's of how many, and why
    others are none.
    """

    policy: PolicyName
    simulated: Outcome
    real: Outcome
    identical: int
    requests: int
    changes: Sequence[Step]
    errors: Sequence[str] = ()


def configuration() -> dict[str, Any]:
    """Return the Serve file that is tuned."""
    values: dict[str, Any] = yaml.safe_load(RAMP_FILE.read_text())
    [entry] = values["applications"]
    entry["args"]["verifier"]["service"]["kv_tokens"] = _KV_TOKENS
    entry["args"]["orchestrator"]["adl"] = {"name": "goodput", "lengths": [0, 4, 8]}
    return values


def simulated_pair(recorded: Mapping[str, Any], file: ServeFile) -> Scenario:
    """Return the scenario of a file, with the starts and the acceptance of a recorded ramp."""
    found = scenario_of(file.model_dump(mode="json"), starts_s(recorded), settle_s=0.0)
    acceptance = found.acceptance.model_copy(update={"rates": (rate_of(recorded),)})
    drafter = found.drafter.model_copy(update={"price": _PRICE})
    return found.model_copy(update={"acceptance": acceptance, "drafter": drafter})


def load(recorded: Mapping[str, Any], plan: RampPlan) -> list[Arrival]:
    """Return a plan's requests as the simulator takes them: prompts of the recorded lengths."""
    sizes = {each["text"]: each["prompt_tokens"] for each in recorded["arrivals"]}
    asked = arrivals(plan.phases, plan.texts, plan.max_tokens, plan.temperature, plan.seed)
    return [Arrival(each.at_s, sizes[each.text], each.max_tokens) for each in asked]


def cost_s(setting: Setting, steps: Sequence[Step], until_s: float) -> float:
    """Return the replica-seconds from 0 to a time, a drafter's at its price."""
    total = 0.0
    for pool, bounds, price in (
        (PoolName.VERIFIER, setting.verifiers, 1.0),
        (PoolName.DRAFTER, setting.drafters, setting.scaling.goodput.price),
    ):
        at, replicas = 0.0, bounds.initial
        for time_s, name, target in steps:
            if name == pool and time_s < until_s:
                total += price * replicas * (max(0.0, time_s) - at)
                at, replicas = max(0.0, time_s), target
        total += price * replicas * (until_s - at)
    return total


def simulated(job: Job, setting: Setting, changes: Sequence[Change]) -> Outcome:
    """Return what a setting comes to in the simulator."""
    requests = job.outcome(setting).requests
    times = [(each.last_s - each.arrived_s) / each.tokens for each in requests if each.last_s]
    steps = [(each.time_s, each.pool, each.target) for each in changes]
    return Outcome(cost_s(setting, steps, PLAN.seconds), percentile(times, 99))


def really(setting: Setting, ramp: Ramp) -> Outcome:
    """Return what a setting came to on a real cluster."""
    times = [each.seconds / len(each.tokens) for each in ramp.answers if each.tokens]
    return Outcome(cost_s(setting, _steps(ramp), PLAN.seconds), percentile(times, 99))


def _steps(ramp: Ramp) -> list[Step]:
    return [(each.at_s, each.pool, each.target) for each in ramp.changes]


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the policies as a table, each cost against that of goodput."""
    own = next(row for row in rows if row.policy == "goodput")
    lines = [
        "| policy | cost, s: simulated, real | to `goodput` | p99 of a token, ms | changes | same "
        "|",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        to = [
            f"{mine.cost_s / best.cost_s - 1:+.0%}"
            for mine, best in ((row.simulated, own.simulated), (row.real, own.real))
        ]
        lines.append(
            f"| `{row.policy}` | {row.simulated.cost_s:.0f}, {row.real.cost_s:.0f} "
            f"| {to[0]}, {to[1]} "
            f"| {1e3 * row.simulated.token_s:.0f}, {1e3 * row.real.token_s:.0f} "
            f"| {len(row.changes)} | {row.identical}/{row.requests} |"
        )
    return "\n".join(lines) + "\n"


app = typer.Typer(add_completion=False)


@app.command()
def main(
    trials: Annotated[int, typer.Option(min=1, help="Simulations of each policy.")] = 40,
    jobs: Annotated[int, typer.Option(min=1, help="Simulations at once.")] = 2,
    only_simulated: Annotated[bool, typer.Option("--simulated", help="No real runs.")] = False,
    json_file: Annotated[Path, typer.Option("--json", help="Where to write it.")] = Path(
        "bench/out/tuned.json"
    ),
) -> None:
    """Tune each policy on a load, and run it with what was found."""
    recorded = json.loads(RECORDED.read_text())
    with TemporaryDirectory() as folder:
        base = Path(folder) / "base.yaml"
        base.write_text(yaml.safe_dump(configuration()))
        scenario = simulated_pair(recorded, read(base))
        job = Job(scenario, load(recorded, PLAN), PLAN.seed, LIMITS.percentile)
        with Runner(job, jobs, lambda: None) as runs:
            tuner = Tuner(base_setting(scenario), LIMITS, runs, jobs)
            found = tuner.tuned(POLICIES, trials, seed=0)
        rows: list[Row] = []
        for each in found:
            setting = tuner.setting(each)
            file = Path(folder) / f"{each.policy}.yaml"
            file.write_text(written(base, setting, ""))
            says = simulated(job, setting, each.best.changes)
            typer.echo(f"{each.policy}: {says}, {each.best.figures}, {each.trials[0].values}")
            if only_simulated:
                continue
            ramp = asyncio.run(measure(read(file), PLAN, lambda line: typer.echo(line, err=True)))
            errors = [one.error for one in ramp.answers if one.error]
            typer.echo(f"{each.policy}: {_steps(ramp)} {errors}")
            made, requests = really(setting, ramp), len(ramp.answers)
            rows.append(
                Row(each.policy, says, made, ramp.identical, requests, _steps(ramp), errors)
            )
    if not only_simulated:
        typer.echo(as_markdown(rows))
        write(json_file, {"rows": [row._asdict() for row in rows]})


if __name__ == "__main__":
    app()
