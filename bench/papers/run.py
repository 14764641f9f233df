"""`foredraft bench papers`: every table in turn, and the report of them all."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from bench.compare.peers import Transformers
from bench.papers.claims import tally
from bench.papers.experiment import Experiment
from bench.papers.experiments import (
    deer,
    deer_alignment,
    deer_batches,
    diffuspec_ablation,
    diffuspec_methods,
    diffuspec_proxies,
    diffuspec_sweeps,
    own_coupling,
    own_lengths,
    own_rules,
    specdiff,
)
from bench.papers.experiments.families import Prompt
from bench.papers.pair import Pair, opened_by
from bench.papers.plan import Plan
from bench.papers.prompts import prompts_for
from bench.papers.report import Section, as_json, as_markdown, as_summary, from_json
from deployments.config import ForedraftConfig, located
from deployments.in_process import engines
from foredraft.errors import ConfigError

Measure = Callable[[Experiment], Awaitable[list[Section]]]
TABLES: dict[str, Measure] = {
    "DiffuSpec Table 1": diffuspec_methods.table_1,
    "DiffuSpec Tables 2 and 4, Fig. 4": diffuspec_ablation.ablation,
    "DiffuSpec Table 5, Fig. 2": diffuspec_sweeps.table_5,
    "DiffuSpec Fig. 5": diffuspec_sweeps.figure_5,
    "DiffuSpec Eq. 7": diffuspec_proxies.proxies,
    "DEER Tables 1, 2 and 4, Fig. 4 and 7": deer.tables,
    "DEER Table 3, Fig. 6 and 8": deer_alignment.tables,
    "DEER Table 5": deer_batches.table_5,
    "SpecDiff Table 4": specdiff.table_4,
    "SpecDiff Fig. 2": specdiff.figure_2,
    "Proposals and rules": own_rules.rules,
    "Shared noise": own_coupling.coupling,
    "Draft lengths": own_lengths.lengths,
}


# Their drafters read text alone; the n-gram table is the embedded drafter's.
_TEXT_ALONE = ("DiffuSpec Eq. 7", "DEER Table 3, Fig. 6 and 8", "Shared noise")


async def run(
    config: ForedraftConfig,
    plan: Plan,
    folder: Path,
    machine: Mapping[str, str],
    tell: Callable[[str], None],
    only: str | None = None,
    resume: bool = False,
) -> None:
    """Measure everything, telling of each table; the report is written anew after every one.

    machine has where and when, as the report's head and its JSON file have it. With `only`, one of
    TABLES is measured, and takes its place in the report that the folder holds; with `resume`,
    those are that it lacks.
    """
    tokenizer = located(config).tokenizer_file
    prompts = prompts_for(tokenizer, plan.per_family)
    many = prompts_for(tokenizer, plan.lengths_per_family)
    sections = _read(folder, plan) if only or resume else {}
    missing = [title for title in TABLES if title not in sections] if resume else list(TABLES)
    began = time.monotonic()
    async with engines(config) as loaded:
        opened = await opened_by(loaded.drafter)
        peers = Transformers(str(config.verifier.service.model), loaded.eos)
        where = {**machine, "target": loaded.target.name, "numerics": loaded.target.numerics}
        for title in [only] if only else missing:
            if opened.model.features_hash and title in _TEXT_ALONE:
                continue
            started = time.monotonic()
            async with AsyncExitStack() as stack:
                pair = Pair(loaded, config, opened, stack)
                found = await TABLES[title](Experiment(pair, peers, prompts, many, plan, folder))
            sections[title] = found
            _write(folder, plan, where, prompts, sections)
            claims = tally([section.claims for section in found])
            took = time.monotonic() - started
            tell(f"{title}: {took:.0f} s, {time.monotonic() - began:.0f} s in all ({claims})")


def _read(folder: Path, plan: Plan) -> dict[str, list[Section]]:
    """Return a report's sections by table; raise ConfigError if there is none of this plan."""
    try:
        report = json.loads((folder / f"{plan.report}.json").read_text())
        tables, measured = report["tables"], report["plan"]
    except (OSError, ValueError, KeyError):
        raise ConfigError("the folder holds no report to go on with", param="out") from None
    if measured != json.loads(json.dumps(asdict(plan))):
        raise ConfigError("the folder's report is of another plan", param="out")
    return {title: from_json(found) for title, found in tables.items()}


def _write(
    folder: Path,
    plan: Plan,
    where: Mapping[str, str],
    prompts: Sequence[Prompt],
    sections: Mapping[str, Sequence[Section]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    in_order = [section for title in TABLES for section in sections.get(title, ())]
    head = _head(plan, where, prompts)
    (folder / f"{plan.report}.md").write_text(as_markdown(head, in_order))
    (folder / f"{plan.report}_summary.md").write_text(as_summary(head, in_order))
    tables = {title: as_json(found) for title, found in sections.items()}
    values = {**where, "plan": asdict(plan), "tables": tables}
    (folder / f"{plan.report}.json").write_text(json.dumps(values, indent=1) + "\n")


def _head(plan: Plan, where: Mapping[str, str], prompts: Sequence[Prompt]) -> str:
    """Return the report's beginning: where it was measured and on what."""
    families = Counter(prompt.family for prompt in prompts)
    counts = ", ".join(f"{count} {family}" for family, count in families.items())
    machine = ", ".join(f"{name} {value}" for name, value in where.items())
    pair, options = "the embedded pair", " --quick" if plan.name == "quick" else ""
    if plan.pair:
        pair = f"{where['target']} and its drafter"
        options += f" --config {plan.pair.removeprefix('_')}.yaml"
    return (
        f"# The papers' experiments on {pair}\n\n"
        f"Written by `foredraft bench papers{options}`: {machine}. How to read it: "
        "[docs/experiments.md](../../docs/experiments.md).\n\n"
        f"Prompts by family: {counts}. Every way decodes the same prompts with the same "
        "seeds, in turn, with plain decoding between them; speedups are medians over prompts of "
        "tokens/s over those of the plain run next to it. MAT excludes the bonus token. "
        "Repetition is the share of a text's 4-grams that occurred in it before, which flatters "
        "every acceptance figure. The papers' figures were printed for other models on other "
        "hardware: what can agree is which way wins, not by how much."
    )
