"""`foredraft status`: what runs on a Ray cluster, and what the autoscaling policy decided."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console

from foredraft_cli.cluster.connection import AddressOption, connected

app = typer.Typer(add_completion=False)

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
    with connected(address):
        return of_connected()


def of_connected() -> list[dict[str, Any]]:
    """Return the state of each application of the cluster that this process is connected to."""
    from ray import serve

    from deployments.autoscaling.names import decisions_key
    from deployments.canary.outcome import newest_key
    from deployments.serve.memory import remembered

    return [
        {
            "application": name,
            "status": str(found.status.value),
            "pools": {
                pool: {state: count for state, count in each.replica_states.items() if count}
                for pool, each in found.deployments.items()
            },
            **_decisions(remembered(decisions_key(name))),
            "canary": json.loads(remembered(newest_key(name)) or b"null"),
        }
        for name, found in serve.status().applications.items()
    ]


def _decisions(kept: bytes | None) -> dict[str, Any]:
    found = json.loads(kept) if kept else {"newest": {}, "changes": []}
    return {"decisions": found["newest"], "changes": found["changes"]}


def _show(found: list[dict[str, Any]]) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if not found:
        console.print("no application runs")
    for each in found:
        console.print(f"{each['application']}: {each['status']}")
        for pool, states in each["pools"].items():
            shown = ", ".join(f"{count} {state}" for state, count in states.items())
            console.print(f"  {pool}: {shown or 'none'}")
        if (canary := each["canary"]) is not None:
            console.print(f"  canary: {trial_line(canary)}")
        for pool, decision in each["decisions"].items():
            ago = time.time() - decision["at"]
            would = ", dry run" if decision["dry_run"] else ""
            console.print(
                f"  {pool} {ago:.0f} s ago: {decision['before']} -> {decision['target']}, wished "
                f"for {decision['wish']}{would}: {decision['reason']}"
            )


def trial_line(canary: dict[str, Any]) -> str:
    """Return how a canary stands, or what became of it and why."""
    arms = ", ".join(
        f"{name} {arm['accepted_per_round']:.2f} tokens/round at {arm['tokens_per_second']:.0f} "
        f"tokens/s in {arm['sessions']} sessions"
        for name, arm in canary["arms"].items()
    )
    if canary["outcome"] is not None:
        return f"{canary['outcome']}: {canary['reason']}"
    return f"on trial with {canary['share']:.0%} of the sessions: {arms}"
