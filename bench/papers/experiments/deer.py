"""DEER Tables 1 and 2: speed and accepted tokens at temperatures 0.6 and 0."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.papers import plots, theirs
from bench.papers.alternate import alternate
from bench.papers.claims import Claim, higher, highest, pays_everywhere, printed
from bench.papers.experiment import Experiment, family_table, raw
from bench.papers.experiments.deer_lengths import section as lengths
from bench.papers.report import Section, Table, number, times
from bench.papers.settings import SPS_LENGTHS, fixed
from bench.papers.stats import MAT, SPEED, families, of_family, speedup, values
from bench.papers.ways import Column, Way

DEER = "DEER (one pass, whole block)"
_AR = "autoregressive draft (a pass for each token, whole block)"
_SHORT = {k: f"autoregressive draft, k={k}" for k in SPS_LENGTHS}
# Tokens of a path of several blocks, the drafter's default.
_LONGEST = 31
_EXTENDED = f"extended block, up to {_LONGEST} (FailFast)"
# The paper's targets differ; the largest and the smallest stand beside ours.
_BESIDE = "Qwen3-30B-A3B"

Columns = dict[str, Column]


async def tables(experiment: Experiment) -> list[Section]:
    """Measure both temperatures; return Tables 1 and 2, then what their accepted lengths say."""
    sampled = await _measure(experiment, 0.6)
    greedy = await _measure(experiment, 0.0)
    block = experiment.pair.block
    compared = tuple(name for name in (DEER, _AR) if name in greedy[0])
    return [
        _speed(experiment, "DEER Table 1: temperature 0.6", 0.6, *sampled),
        _speed(experiment, "DEER Table 2: temperature 0", 0.0, *greedy, sampled[0]),
        lengths(
            experiment, {"0": greedy[0], "0.6": sampled[0]}, _blocks(greedy[0], block), compared
        ),
    ]


def _blocks(columns: Columns, block: int) -> dict[str, int]:
    """Return the ways whose drafts are paths, and the longest each can draft."""
    every = {DEER: block, _AR: block, _EXTENDED: _LONGEST}
    return {name: longest for name, longest in every.items() if name in columns}


async def _measure(experiment: Experiment, temperature: float) -> tuple[Columns, list[Way]]:
    pair, plan = experiment.pair, experiment.plan
    drawn = temperature > 0
    alone, whole = await pair.drafter(edges=False), fixed(pair.block)
    deer: dict[str, Any] = {"proposal": "argmax"}
    rival: dict[str, Any] = {"proposal": "ar"}
    if drawn:
        deer = {"proposal": "sampled", "acceptance": "rejection"}
        # Speculative sampling (Leviathan et al. 2023): each token drawn from q, behind the others.
        rival = deer | {"draft": {"warmup_proposal": "ar", "warmup_tokens": plan.tokens}}
    ways = [
        pair.way(DEER, alone, adl=whole, **deer),
        pair.way("DEER's drafts with edges (ours)", adl=whole, **deer),
    ]
    if pair.text_alone:
        ways += [
            pair.way(_AR, adl=whole, **rival),
            *(pair.way(name, adl=fixed(k), **rival) for k, name in _SHORT.items()),
            pair.way(_EXTENDED, proposal="coupled", adl=fixed(_LONGEST), draft={"extend": True}),
        ]
    if drawn:
        ways += [
            pair.way(
                "DEER's drafts, block rule",
                alone,
                adl=whole,
                **deer | {"acceptance": "block"},
            ),
        ]
    ways += [
        pair.way("prompt lookup", proposal="lookup", adl=whole),
        pair.way("coupled walk, whole block (ours)", proposal="coupled", adl=whole),
        pair.way("tree, 11 nodes (ours)", proposal="tree", adl=fixed(11)),
        pair.way("as served (ours)"),
    ]
    columns = await alternate(pair, experiment.prompts, ways, temperature, plan.tokens, plan.seeds)
    return columns, ways


def _speed(
    experiment: Experiment,
    title: str,
    temperature: float,
    columns: Columns,
    ways: list[Way],
    sampled: Columns | None = None,
) -> Section:
    means = theirs.DEER_MEANS[temperature]
    path = experiment.plot(f"deer_temperature_{temperature:g}")
    groups = families(columns[DEER])
    speeds = {
        way.name.replace("`", ""): [
            median(values(of_family(columns[way.name], group), speedup)) for group in groups
        ]
        for way in ways
    }
    plots.bars(path, speeds, groups, "speedup against plain decoding")
    rule = "sampled drafts under `rejection`" if temperature > 0 else "each slot's best candidate"
    return Section(
        title,
        f"{experiment.plan.tokens} tokens after each of {len(experiment.prompts)} prompts. DEER's "
        f"way here is {rule}, each slot's from its own distribution (Eq. 5); beside it stand its "
        f"figures on {_BESIDE}, and in place of EAGLE-3 the same network, one token a pass, under "
        "the same rule. Their tau is taken as MAT.",
        (
            family_table(columns, ways, temperature, {DEER: means[_BESIDE]["DEER"]}),
            _their_means(temperature),
        ),
        _speed_claims(columns, temperature, sampled),
        (path.name,),
        raw(columns),
    )


def _their_means(temperature: float) -> Table:
    rows = tuple(
        (target, method, times(figure.speedup), number(figure.mat))
        for target, methods in theirs.DEER_MEANS[temperature].items()
        for method, figure in methods.items()
    )
    head = ("their target", "method", "mean speedup", "tau")
    return Table(head, rows, "Theirs, means over four code benchmarks:")


def _speed_claims(
    columns: Columns, temperature: float, sampled: Columns | None
) -> tuple[Claim, ...]:
    deer = columns[DEER]
    means = theirs.DEER_MEANS[temperature]
    beside = means[_BESIDE]
    found = [
        pays_everywhere(
            "DEER is faster than plain decoding on every task",
            printed(SPEED, {name: target["DEER"] for name, target in means.items()}),
            {group: of_family(deer, group) for group in families(deer)},
        ),
    ]
    rivals = {name: columns[name] for name in (_AR, *_SHORT.values()) if name in columns}
    if rivals:
        found += [
            highest(
                "DEER is faster than autoregressive drafting of any length",
                printed(SPEED, beside),
                deer,
                rivals,
                SPEED,
            ),
            higher(
                "DEER accepts more than autoregressive drafting of whole blocks",
                printed(MAT, beside),
                deer,
                rivals[_AR],
                MAT,
            ),
        ]
    if sampled is not None:
        found.append(
            higher(
                "DEER gains more at temperature 0 than at 0.6",
                "; ".join(_both_temperatures(target) for target in means),
                deer,
                sampled[DEER],
                SPEED,
            )
        )
    return tuple(found)


def _both_temperatures(target: str) -> str:
    figures = {f"at {t:g}": theirs.DEER_MEANS[t][target]["DEER"] for t in (0.0, 0.6)}
    return f"{target} {printed(SPEED, figures)}"
