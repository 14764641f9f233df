"""Beyond the papers: `goodput` against every fixed length, by task family."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.papers import plots
from bench.papers.alternate import alternate
from bench.papers.claims import Claim, all_of
from bench.papers.experiment import Experiment, drafted_per_round, family_table, raw
from bench.papers.families import Family
from bench.papers.report import Section, times
from bench.papers.stats import families, in_family, of_family, pooled_mat, speedup, values
from bench.papers.ways import Column

_GOODPUT = "goodput"
_PROPOSAL = "hybrid"
# How far below the best fixed length counts as equal.
_WITHIN = 0.03
_TEMPERATURES = (0.0, 0.8)

Columns = dict[str, Column]


async def lengths(experiment: Experiment) -> list[Section]:
    """Measure fixed lengths and the controller that chooses among them, at both temperatures."""
    return [await _at(experiment, temperature) for temperature in _TEMPERATURES]


async def _at(experiment: Experiment, temperature: float) -> Section:
    pair, plan = experiment.pair, experiment.plan
    choices: dict[str, dict[str, Any]] = {
        f"k={k}": {"name": "fixed", "k": k} for k in plan.lengths if k > 2
    }
    ways = [
        pair.way(name, proposal=_PROPOSAL, adl=adl)
        for name, adl in (choices | {_GOODPUT: {"name": "goodput"}}).items()
    ]
    columns = await alternate(pair, experiment.many, ways, temperature, plan.tokens)
    path = experiment.plot(f"own_lengths_{temperature:g}")
    plots.sweeps(
        path,
        [
            plots.Sweep(
                group,
                list(columns),
                [pooled_mat(of_family(column, group)) for column in columns.values()],
                [median(values(of_family(column, group), speedup)) for column in columns.values()],
            )
            for group in families(columns[_GOODPUT])
        ],
    )
    mean = drafted_per_round(columns[_GOODPUT])
    return Section(
        f"Draft length: `goodput` against fixed lengths, temperature {temperature:g}",
        f"Proposal `{_PROPOSAL}`, {plan.tokens} tokens after each of {len(experiment.many)} "
        f"prompts. `goodput` may also decode plainly; its drafts had {mean:.1f} tokens on average.",
        (family_table(columns, ways, temperature, {}),),
        _claims(columns, list(choices)),
        (path.name,),
        raw(columns),
        says="what should be seen",
    )


def _claims(columns: Columns, fixed: list[str]) -> tuple[Claim, ...]:
    groups = families(columns[_GOODPUT])
    own = {group: _family(columns[_GOODPUT], group) for group in groups}
    best = {group: max(_family(columns[name], group) for name in fixed) for group in groups}
    told = ", ".join(f"{group} {times(own[group])} of {times(best[group])}" for group in groups)
    return (
        all_of(
            f"`goodput` is within {_WITHIN:.0%} of the best fixed length on every family",
            "-",
            told,
            (own[group] >= (1 - _WITHIN) * best[group] for group in groups),
        ),
        all_of(
            "`goodput` is never below plain decoding",
            "-",
            ", ".join(f"{group} {times(speed)}" for group, speed in own.items()),
            (speed >= 1 for speed in own.values()),
        ),
    )


def _family(column: Column, family: Family) -> float:
    found = in_family(column, family, speedup)
    assert found is not None
    return found
