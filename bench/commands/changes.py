"""`foredraft bench rolling` and `kills`: requests while parts of the cluster come and go."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import typer

from bench.commands.report import JsonOption, report
from bench.kills.trials import Loss, Target
from deployments.config import EMBEDDED_FILE, read
from foredraft_cli.options import ConfigOption


def rolling(
    requests: Annotated[int, typer.Option(min=1, help="Requests, at least.")] = 2000,
    clients: Annotated[int, typer.Option(min=1, help="Clients at once.")] = 8,
    json_file: JsonOption = None,
    config: ConfigOption = EMBEDDED_FILE,
) -> None:
    """Deploy changes under load; count requests that failed and texts that differ."""
    from bench.rolling.run import RollingPlan, measure
    from bench.rolling.run import as_json as as_values
    from bench.rolling.run import as_markdown as as_changes

    plan = RollingPlan(requests=requests, clients=clients)
    found = asyncio.run(measure(read(config), plan, lambda line: typer.echo(line, err=True)))
    report("rolling", as_changes(found), as_values(found), json_file)


def kills(
    trials: Annotated[int, typer.Option(min=1, help="How many replicas are lost.")] = 100,
    target: Annotated[Target, typer.Option(help="Whose.")] = Target.AUTOREGRESSIVE,
    replicas: Annotated[int, typer.Option(min=1, help="Of how many.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 1,
    prompt: Annotated[
        int,
        typer.Option(min=200, help="Characters of each prompt, which another one reads."),
    ] = 1200,
    loss: Annotated[Loss | None, typer.Option(help="How they are lost; default: in turn.")] = None,
    json_file: JsonOption = None,
    config: ConfigOption = EMBEDDED_FILE,
) -> None:
    """Kill and stop a target in every step of a request; compare its text, and time its gaps."""
    from bench.kills.run import KillPlan, measure
    from bench.kills.run import as_json as as_values
    from bench.kills.run import as_markdown as as_gaps

    say = partial(typer.echo, err=True)
    losses = tuple(Loss) if loss is None else (loss,)
    plan = KillPlan(target, replicas, trials, seed, losses, prompt)
    found = asyncio.run(measure(read(config), plan, say))
    report("kills", as_gaps(found), as_values(found), json_file)
