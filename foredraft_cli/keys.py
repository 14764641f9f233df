"""`foredraft keys`: make API keys for `ingress.keys_file`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deployments.ingress.doors.keys import add_key

app = typer.Typer(add_completion=False, help="Make API keys.", no_args_is_help=True)


@app.callback()
def keys() -> None:
    """Make API keys."""


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Whose key it is; stands in messages and logs.")],
    file: Annotated[Path, typer.Option(help="The file of keys; made if there is none.")],
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Most requests a minute, in each ingress replica.")
    ] = None,
    concurrent_requests: Annotated[
        int | None, typer.Option(help="Most requests at once, in each ingress replica.")
    ] = None,
) -> None:
    """Make a key, print it once, and add its hash to a file."""
    typer.echo(add_key(file, name, requests_per_minute, concurrent_requests))
