"""`foredraft audit`: does speculation change a token? Each request with and without, compared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from deployments.config import EMBEDDED_FILE, read
from foredraft_cli.audit import options, server
from foredraft_cli.audit.engines import Finding, audit, is_bug
from foredraft_cli.audit.server import ServerFinding, made, recorded
from foredraft_cli.options import ConfigOption
from foredraft_cli.prompts.held_out import PromptsOption, prompts
from foredraft_cli.remote import KeyOption, Server

app = typer.Typer(add_completion=False)


@app.command()
def main(
    url: Annotated[
        str, typer.Argument(help="A running server; without one, engines in this process.")
    ] = "",
    requests: Annotated[int, typer.Option(min=1, help="Held-out prompts.")] = 24,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each answer.")] = 96,
    streams: Annotated[int, typer.Option(min=1, help="Requests decoded at once.")] = 4,
    config: ConfigOption = EMBEDDED_FILE,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to write it.")] = None,
    prompts_file: PromptsOption = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="JSON lines of request bodies to replay on the server, as clients send."),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="On a server: every pair of options' values in some request, if more are needed "
            "than --requests.",
        ),
    ] = False,
    key: KeyOption = "",
) -> None:
    """Replay requests plainly and with drafts; exit 1 where a difference is a bug."""
    if url:
        if pairs:
            bodies = options.bodies(prompts(requests, prompts_file), max_tokens, requests)
        elif replay:
            bodies = recorded(replay)
        else:
            bodies = made(prompts(requests, prompts_file), max_tokens)
        found = asyncio.run(_on_server(url, key, bodies, streams))
        Console(soft_wrap=True).print(_lines(found, bodies), highlight=False, markup=False)
        _finish(json_file, asdict(found), bool(found.bugs))
        return
    args = read(config).application.args
    texts = prompts(requests, prompts_file)
    numerics, findings = asyncio.run(audit(args, texts, max_tokens, streams))
    Console(soft_wrap=True).print(_table(numerics, findings))
    rows = [asdict(finding) for finding in findings]
    different = (found for finding in findings for found in finding.divergences)
    bugs = any(is_bug(numerics, found) for found in different)
    _finish(json_file, {"numerics": numerics, "findings": rows}, bugs)


def _finish(json_file: Path | None, found: dict[str, Any], bugs: bool) -> None:
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")
    if bugs:
        raise typer.Exit(1)


async def _on_server(
    url: str, key: str, bodies: Sequence[dict[str, Any]], streams: int
) -> ServerFinding:
    async with Server(url, key) as running:
        return await server.audit(running, bodies, streams)


def _lines(found: ServerFinding, bodies: Sequence[dict[str, Any]]) -> str:
    """Return what was found on a server, a line for each text that differs."""
    lines = [
        f"identical {found.identical}/{found.requests}: {found.tokens} tokens, of which drafts "
        f"brought {found.drafted}; numerics {found.numerics}"
    ]
    for one in found.partings:
        margin = "unknown" if one.margin is None else f"{one.margin:.3g}"
        lines.append(
            f"request {one.request} parts at token {one.position}: {one.plain} plainly, "
            f"{one.speculative} with drafts, margin {margin}; "
            f"options {options.described(bodies[one.request])}"
        )
    return "\n".join(lines)


def _table(numerics: str, findings: list[Finding]) -> Table:
    table = Table(title=f"speculative against plain decoding, numerics {numerics}")
    for column in ("mode", "temperature", "requests", "identical", "largest margin"):
        table.add_column(column)
    for f in findings:
        margin = max((found.margin for found in f.divergences), default=None)
        table.add_row(
            f.mode,
            f"{f.temperature:g}",
            str(f.requests),
            str(f.identical),
            "-" if margin is None else f"{margin:.3g}",
        )
    return table
