"""Beyond the papers: `goodput` against every fixed length, by task family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from bench.papers import plots
from bench.papers.alternate import alternate
from bench.papers.claims import Claim, pays_everywhere, within_each
from bench.papers.experiment import Experiment, drafted_per_round, family_table, raw
from bench.papers.experiments.families import Family
from bench.papers.prices import Prices
from bench.papers.report import Section, Table, times
from bench.papers.stats import MAT, SPEED, families, of_family, speedup, values
from bench.papers.ways import Column, Decoded

_GOODPUT = "goodput"
_DRAFTS: dict[str, Any] = {"proposal": "tree", "ngram": {"enabled": True}}
# How far below the best fixed length counts as equal.
_WITHIN = 0.03
_TEMPERATURES = (0.0, 0.8)

Priced = dict[Family, float]


async def lengths(experiment: Experiment) -> list[Section]:
    """Measure fixed lengths and the controller that chooses among them, at both temperatures."""
    return [await _at(experiment, temperature) for temperature in _TEMPERATURES]


async def _at(experiment: Experiment, temperature: float) -> Section:
    pair, plan = experiment.pair, experiment.plan
    choices: dict[str, dict[str, Any]] = {
        f"k={k}": {"name": "fixed", "k": k} for k in plan.draft_lengths(pair.block) if k > 2
    }
    ways = [
        pair.way(name, **_DRAFTS, adl=adl)
        for name, adl in (choices | {_GOODPUT: {"name": "goodput"}}).items()
    ]
    columns = await alternate(pair, experiment.many, ways, temperature, plan.tokens, plan.seeds)
    path = experiment.plot(f"own_lengths_{temperature:g}")
    plots.sweeps(
        path,
        [
            plots.Sweep(
                group,
                list(columns),
                [MAT.of(of_family(column, group)) for column in columns.values()],
                [median(values(of_family(column, group), speedup)) for column in columns.values()],
            )
            for group in families(columns[_GOODPUT])
        ],
    )
    mean = drafted_per_round(columns[_GOODPUT])
    prices = Prices.of(decoded for column in columns.values() for decoded in _runs(column))
    priced = {name: _priced(column, prices) for name, column in columns.items()}
    return Section(
        f"Draft length: `goodput` against fixed lengths, temperature {temperature:g}",
        f"Proposal `tree` after `ngram`, {plan.tokens} tokens after each of {len(experiment.many)} "
        f"prompts. `goodput` may also decode plainly; its drafts had {mean:.1f} tokens on average.",
        (family_table(columns, ways, temperature, {}), _priced_table(priced)),
        _claims(columns, list(choices)),
        (path.name,),
        raw(columns),
        heading="what should be seen",
    )


def _runs(column: Column) -> Iterator[Decoded]:
    for sample in column:
        yield from (sample.decoded, sample.plain)


def _priced(column: Column, prices: Prices) -> Priced:
    """Return by family the tokens per priced second over plain decoding's."""
    groups = {family: of_family(column, family) for family in families(column)}
    return {
        family: _rate([sample.decoded for sample in group], prices)
        / _rate([sample.plain for sample in group], prices)
        for family, group in groups.items()
    }


def _rate(runs: Sequence[Decoded], prices: Prices) -> float:
    return sum(len(run.run.tokens) for run in runs) / sum(map(prices.seconds, runs))


def _priced_table(priced: Mapping[str, Priced]) -> Table:
    groups = list(priced[_GOODPUT])
    rows = tuple(
        (name, *(times(found[group]) for group in groups), times(fmean(found.values())))
        for name, found in priced.items()
    )
    return Table(
        ("way here", *groups, "mean"),
        rows,
        "The same runs, each round at the median price of its kind over all ways (a verdict by "
        "draft tokens, a draft by tokens asked for; prompts' reading excluded), so that the "
        "machine's moods do not decide between lengths a few percent apart:",
    )


def _claims(columns: Mapping[str, Column], fixed: Sequence[str]) -> tuple[Claim, ...]:
    own = columns[_GOODPUT]
    groups = families(own)
    return (
        within_each(
            f"`goodput` is within {_WITHIN:.0%} of every fixed length on every family",
            "-",
            {
                f"{group}, {name}": (of_family(own, group), of_family(columns[name], group))
                for group in groups
                for name in fixed
            },
            SPEED,
            _WITHIN,
        ),
        within_each(
            f"`goodput` is within {_WITHIN:.0%} of every fixed length over all families",
            "-",
            {name: (own, columns[name]) for name in fixed},
            SPEED,
            _WITHIN,
        ),
        pays_everywhere(
            "`goodput` is faster than plain decoding on every family",
            "-",
            {group: of_family(own, group) for group in groups},
        ),
    )
