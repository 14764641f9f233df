"""DiffuSpec Eq. 7: path search with each causal proxy alone, and without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.papers.alternate import alternate, limited
from bench.papers.claims import Claim, higher
from bench.papers.experiment import Experiment, raw, sweep_table
from bench.papers.report import Section
from bench.papers.settings import SEARCH, fixed
from bench.papers.stats import MAT
from bench.papers.ways import Column
from drafter_service.config import ScorerConfig

_ARGMAX, _UNIFORM, _WALK = "no search (argmax)", "search, no proxy", "edge walk, no search"
_TABLE, _EDGES = "n-grams of the corpus", "edge head"
# The part of the proxy that has all the weight; none: every token is as likely.
_ALONE: dict[str, ScorerConfig] = {
    _UNIFORM: ScorerConfig(edge=0, context=0),
    _TABLE: ScorerConfig(edge=0, context=0, static=1),
    "n-grams of the text": ScorerConfig(edge=0, context=1),
    _EDGES: ScorerConfig(edge=1, context=0),
}
_THEIRS = "stated in Sec. 4.2"


async def proxies(experiment: Experiment) -> list[Section]:
    """Measure path search with one causal proxy at a time, and what each does without a search."""
    pair, plan = experiment.pair, experiment.plan
    asked: dict[str, Any] = {"adl": fixed(pair.block)}
    ways = [pair.way(_ARGMAX, proposal="argmax", **asked)]
    for name, proxy in _ALONE.items():
        drafter = await pair.drafter(cps=SEARCH | {"scorer": proxy})
        ways.append(pair.way(name, drafter, proposal="cps", **asked))
    # At temperature 0 there is no noise: the walk takes the best edge at each slot.
    ways.append(pair.way(_WALK, proposal="coupled", **asked))
    prompts = limited(experiment.prompts, plan.sweep)
    columns = await alternate(pair, prompts, ways, 0.0, plan.sweep.tokens)
    return [
        Section(
            "DiffuSpec Eq. 7: path search by causal proxy",
            f"Temperature 0, k = {pair.block}, {plan.sweep.tokens} tokens after each of "
            f"{len(prompts)} prompts. The paper's proxy is a 3-gram model of the training split; "
            "ours of that kind is the table of n-grams of the corpus. The edge head is a part of "
            "our drafter, trained with it, and no part of DiffuSpec: what it brings without a "
            "search is the last row.",
            (sweep_table("proxy", columns),),
            _claims(columns),
            figures=raw(columns),
        )
    ]


def _claims(columns: Mapping[str, Column]) -> tuple[Claim, ...]:
    return (
        higher(
            "path search with n-grams alone accepts more than each slot's best",
            _THEIRS,
            columns[_TABLE],
            columns[_ARGMAX],
            MAT,
        ),
        higher(
            "the proxy is what helps: n-grams accept more than a search without a proxy",
            _THEIRS,
            columns[_TABLE],
            columns[_UNIFORM],
            MAT,
        ),
        higher(
            "search helps: with the edge head, a beam accepts more than a walk",
            "-",
            columns[_EDGES],
            columns[_WALK],
            MAT,
        ),
    )
