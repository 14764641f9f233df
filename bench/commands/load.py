"""`foredraft bench load`, `paced` and `ramp`: many sessions at once."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from bench.commands.report import RESULTS, JsonOption, report
from bench.compare.pairs import load_pair, standard_pairs
from deployments.config import PACED_FILE, RAMP_FILE, read


def load(
    quick: Annotated[bool, typer.Option(help="Fewer sessions, turns and tokens.")] = False,
    json_file: JsonOption = None,
    sessions: Annotated[
        list[int] | None, typer.Option(min=1, max=256, help="Numbers of sessions to measure.")
    ] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(min=0, max=2, help="Temperatures to measure.")
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Turns of each way.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="One pair instead of the standard ones.")
    ] = None,
    model: Annotated[str, typer.Option(help="Another one of the server's models.")] = "",
) -> None:
    """Measure plain decoding and Foredraft at 1 to 64 sessions at once, in turn."""
    from bench.load.points import as_markdown as as_load_table
    from bench.load.points import summary
    from bench.load.run import QUICK, LoadPlan, measure

    chosen = QUICK if quick else LoadPlan()
    chosen = replace(
        chosen,
        sessions=tuple(sessions or chosen.sessions),
        temperatures=tuple(temperature or chosen.temperatures),
        turns=turns or chosen.turns,
        model=model,
    )
    if config is None:
        pairs, left_out = standard_pairs(quick=False)
    else:
        pair, left_out = load_pair(None, config, quick=False)
        pairs = [pair]
    for line in left_out:
        typer.echo(line, err=True)
    points = asyncio.run(measure(pairs, chosen, lambda found: typer.echo(summary(found), err=True)))
    found = {"rows": [asdict(point) for point in points]}
    report("load", as_load_table(points), found, json_file)
    try:
        from bench.load.picture import draw
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        typer.echo("no picture: that needs pip install 'foredraft[bench]'", err=True)
    else:
        draw((json_file or RESULTS / "load.json").with_suffix(".png"), points)


def paced(
    quick: Annotated[bool, typer.Option(help="Fewer sessions and turns.")] = False,
    json_file: JsonOption = None,
    sessions: Annotated[
        list[int] | None, typer.Option(min=1, max=256, help="Numbers of sessions to measure.")
    ] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(help="Temperatures to measure: 0, 0.8 or both.")
    ] = None,
    link: Annotated[
        list[float] | None,
        typer.Option(
            min=0, help="Delays to the drafter, in ms; one session, run-ahead off and on."
        ),
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Turns of each way.")] = None,
    slowdown: Annotated[
        float | None, typer.Option(min=1, help="How many times as long as on the device.")
    ] = None,
    config: Annotated[Path, typer.Option("--config", "-c", help="A paced pair.")] = PACED_FILE,
) -> None:
    """Measure both services at a modelled device's pace: Foredraft itself, not a GPU."""
    from bench.paced.points import as_markdown as as_paced_table
    from bench.paced.run import QUICK, PacedPlan, measure

    chosen = QUICK if quick else PacedPlan()
    chosen = replace(
        chosen,
        # Links alone are measured where no sessions are named beside them.
        sessions=tuple(sessions or (() if link else chosen.sessions)),
        temperatures=tuple(temperature or chosen.temperatures),
        links_ms=tuple(link or ()),
        turns=turns or chosen.turns,
        slowdown=slowdown,
    )
    points = asyncio.run(
        measure(read(config), chosen, RESULTS.absolute(), lambda line: typer.echo(line, err=True))
    )
    found = {"rows": [asdict(point) for point in points]}
    report("paced", as_paced_table(points), found, json_file)


def ramp(
    json_file: JsonOption = None,
    config: Annotated[
        Path, typer.Option("--config", "-c", help="A file with an autoscaling policy.")
    ] = RAMP_FILE,
) -> None:
    """Send a load that rises and falls; write what the autoscaling policy decided, and why."""
    from bench.ramp.run import RampPlan, measure
    from bench.ramp.run import as_json as as_values
    from bench.ramp.run import as_markdown as as_decisions

    file, plan = read(config), RampPlan()
    found = asyncio.run(measure(file, plan, lambda line: typer.echo(line, err=True)))
    report("ramp", as_decisions(found), as_values(file, plan, found), json_file)
