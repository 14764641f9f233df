"""`foredraft status`: what runs on a Ray cluster, and what the autoscaling policy decided."""

from __future__ import annotations

import json
import logging
import time
from typing import Annotated, Any

import typer
from rich.console import Console

from foredraft.errors import Unavailable

app = typer.Typer(add_completion=False)

AddressOption = Annotated[
    str, typer.Option(help="Address of the Ray cluster; auto: the one on this machine.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def status(address: AddressOption = "auto", as_json: JsonOption = False) -> None:
    """Show applications, their replicas, and the newest decision for each pool with its reason."""
    found = of_cluster(address)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        _show(found)


def of_cluster(address: str) -> list[dict[str, Any]]:
    """Return each application's state; raise Unavailable where no cluster answers."""
    import ray
    from ray import serve

    from deployments.autoscaling.serve_policy import decisions_key
    from deployments.serve.platform import remembered

    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError) as error:
        raise Unavailable(f"no Ray cluster at {address}: {error}") from None
    try:
        return [
            {
                "application": name,
                "status": str(found.status.value),
                "pools": {
                    pool: {state: count for state, count in each.replica_states.items() if count}
                    for pool, each in found.deployments.items()
                },
                "decisions": json.loads(remembered(decisions_key(name)) or b"{}"),
            }
            for name, found in serve.status().applications.items()
        ]
    finally:
        ray.shutdown()


def _show(found: list[dict[str, Any]]) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if not found:
        console.print("no application runs")
    for each in found:
        console.print(f"{each['application']}: {each['status']}")
        for pool, states in each["pools"].items():
            shown = ", ".join(f"{count} {state}" for state, count in states.items())
            console.print(f"  {pool}: {shown or 'none'}")
        for pool, decision in each["decisions"].items():
            ago = time.time() - decision["at"]
            would = ", dry run" if decision["dry_run"] else ""
            console.print(
                f"  {pool} {ago:.0f} s ago: {decision['before']} -> {decision['target']}, wished "
                f"for {decision['wish']}{would}: {decision['reason']}"
            )
