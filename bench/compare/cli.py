"""`foredraft bench`: plain decoding, Foredraft and what a user would otherwise pick, in turn."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.compare.pairs import load_pair, measure_pairs, standard_pairs
from bench.compare.rows import as_json, as_markdown
from bench.kills.trials import Loss, Target
from bench.spiffy.family import Family
from deployments.config import CHAT_FILE, EMBEDDED_FILE, PACED_FILE, RAMP_FILE, read
from foredraft.errors import ConfigError
from foredraft_cli.options import ConfigOption
from foredraft_cli.prompts.held_out import PromptsOption

# The cores that this process may use, counted before an engine pins its threads; only Linux says.
_CORES = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1

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
    _report("quick" if quick else "bench", as_markdown(rows), {"rows": as_json(rows)}, json_file)


@app.command()
def llama_cpp(
    gguf: Annotated[Path, typer.Option(help="The target's GGUF file.")],
    server: Annotated[
        Path | None, typer.Option(help="llama.cpp's llama-server; default: the one in $PATH.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts of each set, at most.")] = 40,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the rows.")
    ] = None,
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
    _report("llama_cpp", table, found, json_file)


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
def load(
    quick: Annotated[bool, typer.Option(help="Fewer sessions, turns and tokens.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the rows.")
    ] = None,
    sessions: Annotated[
        list[int] | None, typer.Option(min=1, max=256, help="Numbers of sessions to measure.")
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Turns of each way.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="One pair instead of the standard ones.")
    ] = None,
) -> None:
    """Measure plain decoding and Foredraft at 1 to 64 sessions at once, in turn."""
    from bench.load.points import as_markdown as as_load_table
    from bench.load.run import QUICK, LoadPlan, measure

    chosen = QUICK if quick else LoadPlan()
    chosen = replace(
        chosen, sessions=tuple(sessions or chosen.sessions), turns=turns or chosen.turns
    )
    if config is None:
        pairs, left_out = standard_pairs(quick=False)
    else:
        pair, left_out = load_pair(None, config, quick=False)
        pairs = [pair]
    for line in left_out:
        typer.echo(line, err=True)
    points = asyncio.run(measure(pairs, chosen, lambda point: typer.echo(str(point), err=True)))
    found = {"rows": [asdict(point) for point in points]}
    _report("load", as_load_table(points), found, json_file)
    try:
        from bench.load.picture import draw
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        typer.echo("no picture: that needs pip install 'foredraft[bench]'", err=True)
    else:
        draw((json_file or RESULTS / "load.json").with_suffix(".png"), points)


@app.command()
def paced(
    quick: Annotated[bool, typer.Option(help="Fewer sessions and turns.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the rows.")
    ] = None,
    sessions: Annotated[
        list[int] | None, typer.Option(min=1, max=256, help="Numbers of sessions to measure.")
    ] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(help="Temperatures to measure: 0, 0.8 or both.")
    ] = None,
    link: Annotated[
        list[float] | None,
        typer.Option(
            min=0, help="Delays to the drafter, in ms; one session, run-ahead off and on."
        ),
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Turns of each way.")] = None,
    slowdown: Annotated[
        float | None, typer.Option(min=1, help="How many times as long as on the device.")
    ] = None,
    config: Annotated[Path, typer.Option("--config", "-c", help="A paced pair.")] = PACED_FILE,
) -> None:
    """Measure both services at a modelled device's pace: Foredraft itself, not a GPU."""
    from bench.paced.points import as_markdown as as_paced_table
    from bench.paced.run import QUICK, PacedPlan, measure

    chosen = QUICK if quick else PacedPlan()
    chosen = replace(
        chosen,
        # Links alone are measured where no sessions are named beside them.
        sessions=tuple(sessions or (() if link else chosen.sessions)),
        temperatures=tuple(temperature or chosen.temperatures),
        links_ms=tuple(link or ()),
        turns=turns or chosen.turns,
        slowdown=slowdown,
    )
    points = asyncio.run(
        measure(read(config), chosen, RESULTS.absolute(), lambda line: typer.echo(line, err=True))
    )
    found = {"rows": [asdict(point) for point in points]}
    _report("paced", as_paced_table(points), found, json_file)


@app.command()
def ramp(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write load and decisions.")
    ] = None,
    config: Annotated[
        Path, typer.Option("--config", "-c", help="A file with an autoscaling policy.")
    ] = RAMP_FILE,
) -> None:
    """Send a load that rises and falls; write what the autoscaling policy decided, and why."""
    from bench.ramp.run import RampPlan, measure
    from bench.ramp.run import as_json as as_values
    from bench.ramp.run import as_markdown as as_decisions

    file, plan = read(config), RampPlan()
    found = asyncio.run(measure(file, plan, lambda line: typer.echo(line, err=True)))
    _report("ramp", as_decisions(found), as_values(file, plan, found), json_file)


@app.command()
def rolling(
    requests: Annotated[int, typer.Option(min=1, help="Requests, at least.")] = 2000,
    clients: Annotated[int, typer.Option(min=1, help="Clients at once.")] = 8,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write what came of it.")
    ] = None,
    config: ConfigOption = EMBEDDED_FILE,
) -> None:
    """Deploy changes under load; count requests that failed and texts that differ."""
    from bench.rolling.run import RollingPlan, measure
    from bench.rolling.run import as_json as as_values
    from bench.rolling.run import as_markdown as as_changes

    plan = RollingPlan(requests=requests, clients=clients)
    found = asyncio.run(measure(read(config), plan, lambda line: typer.echo(line, err=True)))
    _report("rolling", as_changes(found), as_values(found), json_file)


@app.command()
def kills(
    trials: Annotated[int, typer.Option(min=1, help="How many replicas are lost.")] = 100,
    target: Annotated[Target, typer.Option(help="Whose.")] = Target.VERIFIER,
    replicas: Annotated[int, typer.Option(min=1, help="Of how many.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 1,
    prompt: Annotated[
        int,
        typer.Option(min=200, help="Characters of each prompt, which another one reads."),
    ] = 1200,
    loss: Annotated[Loss | None, typer.Option(help="How they are lost; default: in turn.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the trials.")
    ] = None,
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
    _report("kills", as_gaps(found), as_values(found), json_file)


@app.command()
def assd(
    model: Annotated[Path, typer.Option(help="Folder of an any-subset target.")],
    quick: Annotated[bool, typer.Option(help="Fewer texts and draft lengths.")] = False,
    texts: Annotated[int | None, typer.Option(min=1, help="Held-out texts.")] = None,
    length: Annotated[int | None, typer.Option(min=8, help="Tokens of each.")] = None,
    share: Annotated[
        float | None, typer.Option(min=0.01, max=0.99, help="Share of them that is masked.")
    ] = None,
    development: Annotated[
        bool, typer.Option("--development", help="Texts that settings are tried on.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the rows.")
    ] = None,
) -> None:
    """Measure an any-subset target that drafts for itself, beside Algorithm 1 as printed."""
    from bench.assd.infill import as_markdown as as_holes
    from bench.assd.run import QUICK as QUICK_TEXTS
    from bench.assd.run import AssdPlan, measure
    from bench.assd.table import as_markdown as as_ways
    from bench.assd.table import summary

    plan = QUICK_TEXTS if quick else AssdPlan()
    plan = replace(
        plan,
        texts=texts or plan.texts,
        length=length or plan.length,
        share=share or plan.share,
        development=development,
    )
    embedded = read(EMBEDDED_FILE).application.args.verifier.service.model
    say = partial(typer.echo, err=True)
    rows, infill = measure(model, embedded, plan, _embedded_tokenizer(), say)
    found = summary(rows, plan.k) | {
        "rows": [each._asdict() for each in rows],
        "infill": [each._asdict() for each in infill],
    }
    _report("assd", f"{as_ways(rows)}\n{as_holes(infill)}", found, json_file)


@app.command()
def spiffy(
    model: Annotated[Path, typer.Option(help="Folder of a block-diffusion target, with a graph.")],
    quick: Annotated[bool, typer.Option(help="Fewer prompts and numbers of drafts.")] = False,
    prompts: Annotated[int | None, typer.Option(min=1, help="Held-out prompts.")] = None,
    sessions: Annotated[int, typer.Option(min=1, max=64, help="Texts at once.")] = 1,
    family: Annotated[
        Family, typer.Option(help="Prompts of the standard library alone, or of packages.")
    ] = Family.ALL,
    development: Annotated[
        bool, typer.Option("--development", help="Prompts that settings are tried on.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the rows.")
    ] = None,
) -> None:
    """Measure a diffusion target with and without draft graphs, beside static unmasking."""
    from bench.spiffy.run import QUICK as QUICK_PROMPTS
    from bench.spiffy.run import SpiffyPlan, measure
    from bench.spiffy.table import as_markdown as as_unmaskings

    plan = QUICK_PROMPTS if quick else SpiffyPlan()
    plan = replace(
        plan,
        prompts=prompts or plan.prompts,
        sessions=sessions,
        family=family,
        development=development,
    )
    say = partial(typer.echo, err=True)
    rows = measure(model, plan, _embedded_tokenizer(), say)
    found = {"rows": [each._asdict() for each in rows]}
    _report("spiffy", as_unmaskings(rows), found, json_file)


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
    from bench.papers.plan import FULL, QUICK

    if only not in (None, *TABLES):
        raise ConfigError(f"only must be one of {', '.join(TABLES)}", param="only")
    plan = QUICK if quick else FULL
    if config != EMBEDDED_FILE:
        plan = replace(plan, pair=f"_{config.stem}")
    args = read(config).application.args
    asyncio.run(run(args, plan, out, _machine(), typer.echo, only, resume))


def _embedded_tokenizer() -> Path:
    """Return the tokenizer of the embedded pair and of what is trained beside it."""
    embedded = read(EMBEDDED_FILE).application.args.verifier.service.model
    return embedded.parent / "tokenizer" / "tokenizer.json"


def _report(name: str, table: str, found: dict[str, Any], json_file: Path | None) -> None:
    """Print a table; write what was found, and without a file to write it to the table, too."""
    Console(highlight=False, soft_wrap=True).print(table)
    _write(json_file or RESULTS / f"{name}.json", found)
    if json_file is None:
        (RESULTS / f"{name}.md").write_text(table)


def _write(file: Path, found: dict[str, Any]) -> None:
    """Write a file of what was found, on which machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(_machine() | found, indent=1) + "\n")


def _machine() -> dict[str, str]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {_CORES} cores",
        "python": platform.python_version(),
    }
