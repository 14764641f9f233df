"""`foredraft simulate`: what a trace's requests would see of a cluster, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foredraft_simulator.traces.arrival import Arrival

app = typer.Typer(add_completion=False)


@app.command()
def simulate(
    scenario: Annotated[Path, typer.Argument(help="YAML file of the cluster (docs/simulator.md).")],
    trace: Annotated[
        str | None,
        typer.Option(
            help="Requests: a trace's file, azure-conv, azure-code, or a shape; default: those of "
            "the recorded run, else the shape ramp."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="File of `foredraft record`: acceptance, passes and messages as there."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other luck.")] = 0,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="File for all figures and every request.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a picture (PNG or SVG).")] = None,
) -> None:
    """Simulate a cluster with the real session, controllers, market, routing and policies."""
    from foredraft_simulator.acceptance.config import RecordedConfig
    from foredraft_simulator.recorded_runs.costs import arrivals_of, costs_of, played
    from foredraft_simulator.recorded_runs.records import read_run
    from foredraft_simulator.report.picture import draw
    from foredraft_simulator.report.table import as_text, summary
    from foredraft_simulator.scenario.scenario import read_scenario
    from foredraft_simulator.simulate import simulate as simulated
    from foredraft_simulator.traces.named import named_trace

    config = read_scenario(scenario)
    arrivals: Sequence[Arrival] = ()
    if run is not None:
        recorded = read_run(run)
        config = played(config, RecordedConfig(run=run), costs_of(recorded))
        arrivals = arrivals_of(recorded)
    if trace is not None or not arrivals:
        arrivals = named_trace(trace or "ramp", seed).arrivals
    outcome = simulated(config, arrivals, seed)
    typer.echo(f"{config.name or scenario.stem}, {trace or run or 'ramp'}, seed {seed}")
    typer.echo(as_text(outcome))
    if as_json is not None:
        rows = [
            {
                "arrived_s": each.arrived_s,
                "prompt_tokens": each.prompt_tokens,
                "tokens": each.tokens,
                "ttft_s": each.ttft_s,
                "tpot_s": each.tpot_s,
                "error": each.error,
            }
            for each in outcome.requests
        ]
        sizes = {
            name: [size._asdict() for size in pool.sizes] for name, pool in outcome.pools.items()
        }
        found = {**summary(outcome), "sizes": sizes, "each": rows}
        as_json.write_text(json.dumps(found, indent=1) + "\n")
    if plot is not None:
        draw(outcome, config.name or scenario.stem, plot)
