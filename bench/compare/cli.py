"""`foredraft bench`: plain decoding, Foredraft and what a user would otherwise pick, in turn."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.compare.rows import Row, as_json, as_markdown
from bench.compare.workload import LOOKUP, dlm
from deployments.config import DEFAULT_FILE, ServeFile, read
from deployments.serve.cluster import running
from foredraft.client import CompletionClient
from foredraft.errors import ConfigError
from foredraft_cli.held_out import TEMPERATURES, PromptsOption, fitted, prompts
from foredraft_cli.options import ConfigOption

app = typer.Typer(help="Measure against plain decoding.", invoke_without_command=True)
# Not under version control: bench/results holds the summaries that are.
RESULTS = Path("bench/out")


@app.callback()
def main(
    context: typer.Context,
    quick: Annotated[bool, typer.Option(help="Fewer prompts: under five minutes.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the rows.")
    ] = None,
    config: ConfigOption = DEFAULT_FILE,
    prompts_file: PromptsOption = None,
) -> None:
    """Write a table and a JSON file of medians over alternating runs on held-out prompts."""
    if context.invoked_subcommand is not None:
        return
    count, peers, max_tokens = (12, 4, 96) if quick else (48, 16, 128)
    proposals = ["ngram+tree", "tree", "coupled"] + ([] if quick else ["cps", "argmax", "ar"])
    texts = prompts(count, prompts_file)
    rows = asyncio.run(_measure(read(config), texts, peers, max_tokens, proposals))
    table = as_markdown(rows)
    Console(highlight=False, soft_wrap=True).print(table)
    name = "quick" if quick else "bench"
    out = json_file or RESULTS / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(_machine() | {"rows": as_json(rows)}, indent=1) + "\n")
    if json_file is None:
        (RESULTS / f"{name}.md").write_text(table)


@app.command()
def papers(
    quick: Annotated[bool, typer.Option(help="Fewer prompts: under five minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report and its plots.")] = RESULTS,
    only: Annotated[
        str | None, typer.Option(help="One table, to be measured again for the report in `out`.")
    ] = None,
    config: ConfigOption = DEFAULT_FILE,
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


async def _measure(
    file: ServeFile, texts: list[str], peers: int, max_tokens: int, proposals: list[str]
) -> list[Row]:
    modes = [*(dlm(proposal) for proposal in proposals), LOOKUP]
    asked, rows = await _in_process(file, texts, peers, max_tokens, modes)
    return rows + await _through_cluster(file, asked, max_tokens, modes)


async def _in_process(
    file: ServeFile, texts: list[str], peer_prompts: int, max_tokens: int, modes: list[Any]
) -> tuple[list[tuple[int, ...]], list[Row]]:
    """Return the prompts as the target reads them, and the rows."""
    # Imported here: the cluster's own processes need the memory, and this one no torch by then.
    from bench.compare.peers import Transformers
    from bench.compare.process import ProcessBench
    from deployments.in_process import engines

    config = file.application.args
    rows: list[Row] = []
    async with engines(config) as loaded:
        peers = Transformers(str(config.verifier.service.model), loaded.eos)
        bench = ProcessBench(loaded, config.orchestrator, peers, max_tokens, peer_prompts)
        asked = [fitted(text, loaded.tokenizer, loaded.target, max_tokens) for text in texts]
        for temperature in TEMPERATURES:
            rows += await bench.measure(asked, temperature, modes)
    return asked, rows


async def _through_cluster(
    file: ServeFile, asked: list[tuple[int, ...]], max_tokens: int, modes: list[Any]
) -> list[Row]:
    from bench.compare.cluster import measure

    rows: list[Row] = []
    with running(file) as cluster:
        async with CompletionClient(cluster.url) as client:
            for temperature in TEMPERATURES:
                rows += await measure(client, asked, temperature, max_tokens, modes)
    return rows


def _machine() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {_cores()} cores",
        "python": platform.python_version(),
    }


def _cores() -> int:
    """Return how many cores this process may use; only Linux says that."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
