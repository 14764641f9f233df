"""`foredraft deploy`: a file goes live on a running cluster, with as little new as it needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
import yaml

from deployments.config import read
from deployments.preflight import check_models
from foredraft_cli.cluster.connection import AddressOption, connected

app = typer.Typer(add_completion=False)


@app.command()
def deploy(
    file: Annotated[Path, typer.Argument(help="The file, as `foredraft serve` takes it.")],
    address: AddressOption = "auto",
    dry_run: Annotated[bool, typer.Option(help="Show what would change, and change nothing.")] = (
        False
    ),
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the file for `serve deploy` instead.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Longest wait until all is new, in seconds.")
    ] = 600.0,
) -> None:
    """Change what runs to a file: one replica after the other, in place, or only in number."""
    from deployments.serve import deploying

    found = read(file)
    check_models(found.application.args)
    if as_yaml:
        typer.echo(yaml.safe_dump(deploying.serve_values(found), sort_keys=False), nl=False)
        return
    with connected(address):
        for name, change in deploying.deployed_changes(found).items():
            typer.echo(f"{name}: {change}")
        if dry_run:
            return
        began = time.monotonic()
        deploying.deploy(found)
        deploying.wait_until_deployed(found.application.name, timeout_s)
    typer.echo(f"{found.application.name} runs after {time.monotonic() - began:.1f} s")
