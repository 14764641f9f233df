"""`foredraft bench`: plain decoding, Foredraft and what a user would otherwise pick, in turn."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from bench.commands.changes import kills, rolling
from bench.commands.load import load, paced, ramp
from bench.commands.report import RESULTS, JsonOption, machine, report, write
from bench.commands.targets import assd, spiffy
from bench.compare.pairs import load_pair, measure_pairs, standard_pairs
from bench.compare.rows import as_json, as_markdown
from deployments.config import CHAT_FILE, EMBEDDED_FILE, read
from foredraft.errors import ConfigError
from foredraft_cli.options import ConfigOption
from foredraft_cli.prompts.held_out import PromptsOption

app = typer.Typer(help="Measure against plain decoding.", invoke_without_command=True)


@app.callback()
def main(
    context: typer.Context,
    quick: Annotated[bool, typer.Option(help="Fewer prompts and ways of decoding.")] = False,
    json_file: JsonOption = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="One pair instead of the standard ones.")
    ] = None,
    prompts_file: PromptsOption = None,
    cluster_only: Annotated[
        bool, typer.Option("--cluster-only", help="Leave out what runs in this process.")
    ] = False,
) -> None:
    """Write a table and a JSON file of medians over alternating runs.

    The embedded pair continues held-out code; the chat pair answers HumanEval and chat prompts.
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
    for line in left_out:
        typer.echo(line, err=True)
    rows = asyncio.run(measure_pairs(pairs))
    report("quick" if quick else "bench", as_markdown(rows), {"rows": as_json(rows)}, json_file)


@app.command()
def llama_cpp(
    gguf: Annotated[Path, typer.Option(help="The target's GGUF file.")],
    server: Annotated[
        Path | None, typer.Option(help="llama.cpp's llama-server; default: the one in $PATH.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts of each set, at most.")] = 40,
    json_file: JsonOption = None,
    config: ConfigOption = CHAT_FILE,
) -> None:
    """Measure the chat pair beside llama.cpp on the same weights, at temperature 0."""
    from bench.compare.beside import find_peers

    pair, left_out = load_pair("smollm2" if config == CHAT_FILE else None, config, quick=False)
    for line in left_out:
        typer.echo(line, err=True)
    sets = tuple(replace(each, prompts=each.prompts[:limit]) for each in pair.sets)
    beside = asyncio.run(find_peers(replace(pair, sets=sets), server, gguf, RESULTS).measure())
    table = as_markdown(beside.rows) + "".join(f"\n{one}\n" for one in beside.against)
    found = {"rows": as_json(beside.rows), "against": [asdict(one) for one in beside.against]}
    report("llama_cpp", table, found, json_file)


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
    write(json_file, score.as_json())


for command in (load, paced, ramp, rolling, kills, assd, spiffy):
    app.command()(command)


@app.command()
def papers(
    quick: Annotated[bool, typer.Option(help="Fewer prompts.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report and its plots.")] = RESULTS,
    only: Annotated[
        str | None, typer.Option(help="One table, to be measured again for the report in `out`.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the report in `out`.")] = False,
    config: ConfigOption = EMBEDDED_FILE,
) -> None:
    """Repeat the papers' experiments in this process; write a report, its summary and plots."""
    try:
        from bench.papers.run import TABLES, run
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ConfigError("plots need matplotlib: pip install 'foredraft[bench]'") from None
    from bench.papers.plan import plan_for

    if only not in (None, *TABLES):
        raise ConfigError(f"only must be one of {', '.join(TABLES)}", param="only")
    plan = plan_for("" if config == EMBEDDED_FILE else config.stem, quick)
    args = read(config).application.args
    asyncio.run(run(args, plan, out, machine(), typer.echo, only, resume))
