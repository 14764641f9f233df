"""`foredraft bench`: plain decoding, Foredraft and what a user would otherwise pick, in turn."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.compare.beside import Peers, find_peers
from bench.compare.pairs import load_pair, measure_pairs, standard_pairs
from bench.compare.rows import as_json, as_markdown
from deployments.config import CHAT_FILE, EMBEDDED_FILE, read
from foredraft.errors import ConfigError
from foredraft_cli.options import ConfigOption
from foredraft_cli.prompts.held_out import PromptsOption

app = typer.Typer(help="Measure against plain decoding.", invoke_without_command=True)
# Not under version control: bench/results holds the summaries that are.
RESULTS = Path("bench/out")


@app.callback()
def main(
    context: typer.Context,
    quick: Annotated[bool, typer.Option(help="Fewer prompts and ways of decoding.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the rows.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="One pair instead of the standard ones.")
    ] = None,
    prompts_file: PromptsOption = None,
    cluster_only: Annotated[
        bool, typer.Option("--cluster-only", help="Leave out what runs in this process.")
    ] = False,
    llama_server: Annotated[
        Path | None, typer.Option(help="llama.cpp's llama-server; default: the one in $PATH.")
    ] = None,
    gguf: Annotated[
        Path | None, typer.Option(help="The chat target's GGUF file, for llama-server.")
    ] = None,
) -> None:
    """Write a table and a JSON file of medians over alternating runs.

    The embedded pair continues held-out code; the chat pair answers HumanEval and chat prompts,
    beside llama.cpp where that is installed.
    """
    if context.invoked_subcommand is not None:
        return
    if config is None and prompts_file is None:
        pairs, left_out = standard_pairs(quick)
    else:
        pair, left_out = load_pair(None, config or EMBEDDED_FILE, quick, prompts_file)
        pairs = [pair]
    if cluster_only:
        pairs = [replace(pair, plan=replace(pair.plan, peer_prompts=0)) for pair in pairs]
    peers: Peers | None = None
    try:
        peers = find_peers(pairs, llama_server, gguf, RESULTS)
    except ConfigError as error:
        left_out.append(f"llama.cpp is left out: {error}")
    for line in left_out:
        typer.echo(line, err=True)
    rows, against = asyncio.run(measure_pairs(pairs)), []
    if peers is not None:
        beside = asyncio.run(peers.measure())
        rows, against = [*rows, *beside.rows], list(beside.against)
    table = as_markdown(rows) + "".join(f"\n{one}\n" for one in against)
    Console(highlight=False, soft_wrap=True).print(table)
    name = "quick" if quick else "bench"
    found = {"rows": as_json(rows), "against_llama_cpp": [asdict(one) for one in against]}
    _write(json_file or RESULTS / f"{name}.json", found)
    if json_file is None:
        (RESULTS / f"{name}.md").write_text(table)


@app.command()
def pass_at_1(
    limit: Annotated[int, typer.Option(min=1, help="Tasks, from the first on.")] = 164,
    json_file: Annotated[
        Path, typer.Option("--json", help="Where to write the outcomes.")
    ] = RESULTS / "pass_at_1.json",
    config: ConfigOption = CHAT_FILE,
) -> None:
    """Score HumanEval answers with and without speculation, checked in a sandbox."""
    from bench.compare.pass_at_1 import measure
    from foredraft_cli.prompts.human_eval import tasks

    file, chosen = read(config), tasks()[:limit]
    score = asyncio.run(measure(file.application.args.name, file, chosen))
    typer.echo(score.summary())
    _write(json_file, score.as_json())


@app.command()
def papers(
    quick: Annotated[bool, typer.Option(help="Fewer prompts: under ten minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report and its plots.")] = RESULTS,
    only: Annotated[
        str | None, typer.Option(help="One table, to be measured again for the report in `out`.")
    ] = None,
    config: ConfigOption = EMBEDDED_FILE,
) -> None:
    """Repeat the papers' experiments in this process; write a report, its summary and plots."""
    try:
        from bench.papers.run import TABLES, run
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ConfigError("plots need matplotlib: pip install 'foredraft[bench]'") from None
    from bench.papers.plan import FULL, QUICK

    if only not in (None, *TABLES):
        raise ConfigError(f"only must be one of {', '.join(TABLES)}", param="only")
    plan = QUICK if quick else FULL
    asyncio.run(run(read(config).application.args, plan, out, _machine(), typer.echo, only))


def _write(file: Path, found: dict[str, Any]) -> None:
    """Write a file of what was found, on which machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(_machine() | found, indent=1) + "\n")


def _machine() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {_cores()} cores",
        "python": platform.python_version(),
    }


def _cores() -> int:
    """Return how many cores this process may use; only Linux says that."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
