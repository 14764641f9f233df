"""`foredraft bench assd` and `spiffy`: targets that fill slots."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bench.commands.report import JsonOption, report
from bench.spiffy.family import Family
from deployments.config import EMBEDDED_FILE, read
from foredraft.pacing.config import PaceConfig

PacedOption = Annotated[
    Path | None,
    typer.Option(
        "--paced", help="Configuration whose verifier's pace each pass takes: a modelled device."
    ),
]


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
    law: Annotated[
        bool, typer.Option("--law", help="Only compare perplexity and entropy, on many texts.")
    ] = False,
    paced: PacedOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure an any-subset target that drafts for itself, beside Algorithm 1 as printed."""
    from bench.assd.infill import as_markdown as as_holes
    from bench.assd.law import as_markdown as as_laws
    from bench.assd.run import LAW, LAW_QUICK, AssdPlan, measure, measure_law
    from bench.assd.run import QUICK as QUICK_TEXTS
    from bench.assd.table import as_markdown as as_ways
    from bench.assd.table import summary

    if law and paced:
        raise typer.BadParameter("texts are not timed", param_hint="--paced")
    plan = (LAW_QUICK if quick else LAW) if law else (QUICK_TEXTS if quick else AssdPlan())
    plan = replace(
        plan,
        texts=texts or plan.texts,
        length=length or plan.length,
        share=share or plan.share,
        development=development,
        pace=_pace(paced),
    )
    embedded = read(EMBEDDED_FILE).application.args.verifier.service.model
    say = partial(typer.echo, err=True)
    if law:
        laws = measure_law(model, embedded, plan, _embedded_tokenizer(), say)
        report("assd", as_laws(laws), {"rows": [each._asdict() for each in laws]}, json_file)
        return
    rows, infill = measure(model, embedded, plan, _embedded_tokenizer(), say)
    found = summary(rows, plan.k, plan.tree) | {
        "rows": [each._asdict() for each in rows],
        "infill": [each._asdict() for each in infill],
    }
    report("assd", f"{as_ways(rows)}\n{as_holes(infill)}", found, json_file)


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
    paced: PacedOption = None,
    json_file: JsonOption = None,
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
        pace=_pace(paced),
    )
    say = partial(typer.echo, err=True)
    rows = measure(model, plan, _embedded_tokenizer(), say)
    found = {"rows": [each._asdict() for each in rows]}
    report("spiffy", as_unmaskings(rows), found, json_file)


def _pace(config: Path | None) -> PaceConfig | None:
    if config is None:
        return None
    pace = read(config).application.args.verifier.service.pace
    if pace is None:
        raise typer.BadParameter("its verifier has no pace", param_hint="--paced")
    return pace


def _embedded_tokenizer() -> Path:
    """Return the tokenizer of the embedded pair and of what is trained beside it."""
    embedded = read(EMBEDDED_FILE).application.args.verifier.service.model
    return embedded.parent / "tokenizer" / "tokenizer.json"
