"""`foredraft doctor`: why speculation is off or slow on a server, and what to change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from foredraft_cli.doctor.checks import diagnose
from foredraft_cli.doctor.facts import Facts, gather
from foredraft_cli.doctor.machine import examine
from foredraft_cli.prompts.held_out import PromptsOption, prompts
from foredraft_cli.remote import URL, KeyOption, Server, UrlArgument

app = typer.Typer(add_completion=False)


@app.command()
def main(
    url: UrlArgument = URL,
    key: KeyOption = "",
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Examine this file, and no server.")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests decoded both ways.")] = 6,
    max_tokens: Annotated[int, typer.Option(min=8, help="Tokens of each answer.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    prompts_file: PromptsOption = None,
) -> None:
    """Examine a running server, or a configuration; exit 1 where something is wrong."""
    figures = {}
    if config is None:
        facts = asyncio.run(_facts(url, key, prompts(requests, prompts_file), max_tokens))
        findings, figures = diagnose(facts), summary(facts)
    else:
        findings = examine(config)
    console = Console(soft_wrap=True, highlight=False)
    if as_json:
        found = {"findings": [finding._asdict() for finding in findings], **figures}
        typer.echo(json.dumps(found, indent=1))
    else:
        for name, value in figures.items():
            console.print(f"{name}: {value}", markup=False)
        for name, what, change in findings:
            console.print(f"\n[bold red]{name}[/]", end=": ")
            console.print(what, markup=False)
            console.print(f"  change: {change}", markup=False)
        if not findings:
            console.print("Nothing is wrong.")
    if findings:
        raise typer.Exit(1)


async def _facts(url: str, key: str, texts: list[str], max_tokens: int) -> Facts:
    async with Server(url, key) as server:
        return await gather(server, texts, max_tokens)


def summary(facts: Facts) -> dict[str, str]:
    """Return what was measured, by what it is called; empty where nothing could be."""
    if not facts.probes:
        return {}
    speed = median(probe.plain.seconds / probe.fast.seconds for probe in facts.probes)
    same = sum(probe.plain.tokens == probe.fast.tokens for probe in facts.probes)
    drafted = [one for one in facts.rounds if one["source"] != "none"]
    kept = sum(len(one["draft"]["kept"]) for one in drafted)
    return {
        "target": f"{facts.verifier['model']}, numerics {facts.verifier['numerics']}",
        "drafter": str(facts.drafter.get("model", "none")),
        "speed": f"{speed:.2f}x plain decoding, median of {len(facts.probes)} requests",
        "identical": f"{same} of {len(facts.probes)}",
        "drafted": f"{len(drafted)} of {len(facts.rounds)} rounds, "
        f"{kept / max(len(drafted), 1):.2f} tokens accepted in each",
    }
