"""`foredraft tune`: policies over a trace in the simulator, each with its cheapest parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from deployments.config import CHAT_FILE
from foredraft.errors import ConfigError
from foredraft_simulator.scenario.scenario import Scenario, read_scenario
from foredraft_simulator.traces.arrival import Trace
from foredraft_simulator.traces.named import named_trace
from foredraft_simulator.traces.transform import clipped, first, rate_scaled, time_scaled
from foredraft_simulator.tune.evaluate import Job, Runner
from foredraft_simulator.tune.figures import Limits
from foredraft_simulator.tune.run import Tuned
from foredraft_simulator.tune.serve_file import written
from foredraft_simulator.tune.space import POLICIES, PolicyName, Setting
from foredraft_simulator.tune.table import COLUMNS, as_json, rows
from foredraft_simulator.tune.tuning import Tuner, base_setting

app = typer.Typer(add_completion=False)

_SHIPPED = Path(__file__).parents[2] / "foredraft_simulator" / "tune" / "scenarios"


@app.command()
def tune(
    scenario: Annotated[
        str, typer.Argument(help="A scenario's file, or the name of a shipped one: l40s.")
    ],
    trace: Annotated[
        str,
        typer.Option(help="A trace's file, azure-conv, azure-code, or a shape: ramp:peak=3,rate=1"),
    ],
    policy: Annotated[
        Literal["static", "utilisation", "goodput", "all"], typer.Option(help="What is tuned.")
    ] = "all",
    trials: Annotated[int, typer.Option(min=1, help="Runs of each policy.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Of search, trace and simulation.")] = 0,
    ttft_ms: Annotated[float, typer.Option(min=0.001, help="Limit of the first token.")] = 2000,
    tpot_ms: Annotated[float, typer.Option(min=0.001, help="Limit per token after it.")] = 50,
    percentile: Annotated[
        float, typer.Option(min=1, max=100, help="Percentile of requests that keeps the limits.")
    ] = 99,
    time_scale: Annotated[float, typer.Option(min=1e-6, help="Factor of the trace's times.")] = 1,
    rate_scale: Annotated[float, typer.Option(min=1e-6, help="Factor of its requests.")] = 1,
    context: Annotated[
        int | None, typer.Option(min=2, help="Most tokens of a request; prompts are shortened.")
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Requests, of the trace's first.")] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Runs at once, a process each.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write JSON.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Where to write a picture (.png, .svg).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write a Serve file with what was found.")
    ] = None,
    base: Annotated[
        Path, typer.Option(help="The Serve file that gets the parameters, with --out.")
    ] = CHAT_FILE,
) -> None:
    """Find each policy's cheapest parameters that keep latency limits on a trace.

    Exits 1 where no policy keeps them.
    """
    limits = Limits(percentile=percentile, ttft_s=ttft_ms / 1e3, tpot_s=tpot_ms / 1e3)
    cluster = _scenario(scenario)
    setting = base_setting(cluster)
    load = _trace(trace, seed, time_scale, rate_scale, context, most)
    _writable(json_file, plot, out)
    if out is not None:
        written(base, setting, "")
    policies: Sequence[PolicyName] = POLICIES if policy == "all" else (policy,)
    job = Job(cluster, load.arrivals, seed, percentile)
    found, tuner = _tuned(job, setting, limits, policies, trials, seed, jobs)
    _show(found, limits, load)
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(found, limits), indent=1) + "\n")
    if plot is not None:
        from foredraft_simulator.tune.picture import draw

        draw(plot, load, found, limits)
    best = found[0]
    kept = best.best.figures.excess(limits) == 0
    if out is not None:
        comment = _comment(best, load, limits, kept)
        out.write_text(written(base, tuner.setting(best), comment))
        typer.echo(f"{out}: {best.policy}; look at it with `foredraft check {out}`")
    if not kept:
        typer.echo(
            "no policy keeps the limits: raise max_replicas in the scenario, --trials, or the "
            "limits (--ttft-ms, --tpot-ms)",
            err=True,
        )
        raise typer.Exit(1)


def _scenario(name: str) -> Scenario:
    shipped = {path.stem: path for path in sorted(_SHIPPED.glob("*.yaml"))}
    path = shipped.get(name, Path(name))
    if not path.is_file():
        raise ConfigError(
            f"scenario: {name} is neither a file nor one of {', '.join(shipped)}", param="scenario"
        )
    return read_scenario(path)


def _trace(
    name: str, seed: int, time: float, rate: float, context: int | None, most: int | None
) -> Trace:
    found = named_trace(name, seed)
    if rate != 1:
        found = rate_scaled(found, rate, seed)
    if time != 1:
        found = time_scaled(found, time)
    if context is not None:
        found = clipped(found, context)
    if most is not None:
        found = first(found, most)
    if not found.arrivals:
        raise ConfigError(f"trace: {name} has no request left: raise --rate-scale", param="trace")
    return found


def _writable(*files: Path | None) -> None:
    """Refuse a file that cannot be written, before minutes are spent on what it is to hold."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise ConfigError(f"{file}: its folder does not exist", param="file")


def _tuned(
    job: Job,
    setting: Setting,
    limits: Limits,
    policies: Sequence[PolicyName],
    trials: int,
    seed: int,
    jobs: int,
) -> tuple[list[Tuned], Tuner]:
    console = Console(stderr=True)
    columns = TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as shown:
        # At most: what was run before is not run again.
        task = shown.add_task("", total=len(policies) * (trials + len(policies) - 1))
        with Runner(job, jobs, lambda: shown.advance(task)) as runs:
            tuner = Tuner(setting, limits, runs, jobs)
            found = tuner.tuned(policies, trials, seed)
            shown.update(task, completed=shown.tasks[0].total)
    return found, tuner


def _show(found: Sequence[Tuned], limits: Limits, trace: Trace) -> None:
    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = 120
    console.print(
        f"{trace.source}: {len(trace.arrivals)} requests in {trace.duration_s:.0f} s; limits at "
        f"p{limits.percentile:g}: TTFT {1e3 * limits.ttft_s:g} ms, TPOT {1e3 * limits.tpot_s:g} "
        "ms; cost in hours of a verifier"
    )
    if trace.failed:
        console.print(f"{trace.failed} requests of the trace had failed and are left out")
    table = Table()
    for nth, column in enumerate(COLUMNS):
        side: Literal["left", "right"] = "left" if nth in (0, len(COLUMNS) - 1) else "right"
        table.add_column(column, justify=side, no_wrap=True)
    for row in rows(found, limits):
        table.add_row(*row)
    console.print(table)
    for each in found:
        values = ", ".join(f"{name} {value:g}" for name, value in each.trials[0].values.items())
        console.print(f"{each.policy}: {values}", markup=False)


def _comment(best: Tuned, trace: Trace, limits: Limits, kept: bool) -> str:
    figures = best.best.figures
    return (
        f"`{best.policy}` as `foredraft tune` found it for {trace.source}, {len(trace.arrivals)} "
        f"requests in {trace.duration_s:.0f} s:\n"
        f"p{limits.percentile:g} TTFT {1e3 * figures.ttft_s:.0f} ms of {1e3 * limits.ttft_s:g}, "
        f"TPOT {1e3 * figures.tpot_s:.1f} ms of {1e3 * limits.tpot_s:g}"
        f"{'' if kept else ' (NOT kept)'}, cost {figures.cost:.4f} verifier-hours, simulated."
    )
