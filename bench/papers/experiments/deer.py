"""DEER Tables 1 and 2: speed and accepted tokens at temperatures 0.6 and 0."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.papers import plots, theirs
from bench.papers.alternate import alternate
from bench.papers.claims import Claim, all_of, beats_plain, higher, printed
from bench.papers.experiment import Experiment, family_table, raw
from bench.papers.experiments.deer_lengths import section as lengths
from bench.papers.report import Section, Table, number, times
from bench.papers.settings import SPS_K, K, fixed
from bench.papers.stats import families, in_family, mat, of_family, speedup, values
from bench.papers.ways import Column, Way

DEER = f"DEER (one pass, k={K})"
_AR = f"autoregressive draft (`ar`, k={SPS_K})"
# Tokens of a path of several blocks, the drafter's default.
_LONGEST = 31
_EXTENDED = f"extended block, up to {_LONGEST} (FailFast)"
# The paper's targets differ; the largest and the smallest stand beside ours.
_BESIDE = "Qwen3-30B-A3B"
# Ways whose drafts are paths, and the longest each can draft.
_BLOCKS = {DEER: K, _AR: SPS_K, _EXTENDED: _LONGEST}

Columns = dict[str, Column]


async def tables(experiment: Experiment) -> list[Section]:
    """Measure both temperatures; return Tables 1 and 2, then what their accepted lengths say."""
    sampled = await _measure(experiment, 0.6)
    greedy = await _measure(experiment, 0.0)
    return [
        _speed(experiment, "DEER Table 1: temperature 0.6", 0.6, *sampled),
        _speed(experiment, "DEER Table 2: temperature 0", 0.0, *greedy, sampled[0]),
        lengths(experiment, {"0": greedy[0], "0.6": sampled[0]}, _BLOCKS, (DEER, _AR)),
    ]


async def _measure(experiment: Experiment, temperature: float) -> tuple[Columns, list[Way]]:
    pair, plan = experiment.pair, experiment.plan
    drawn = temperature > 0
    deer: dict[str, Any] = {"proposal": "argmax"}
    if drawn:
        deer = {"proposal": "sampled", "acceptance": "rejection"}
    ways = [
        pair.way(DEER, adl=fixed(K), **deer),
        pair.way(_AR, proposal="ar", adl=fixed(SPS_K)),
        pair.way(_EXTENDED, proposal="coupled", adl=fixed(_LONGEST), draft={"extend": True}),
    ]
    if drawn:
        ways += [
            pair.way("DEER's drafts, block rule", adl=fixed(K), **deer | {"acceptance": "block"}),
        ]
    ways += [
        pair.way("prompt lookup", proposal="lookup", adl=fixed(K)),
        pair.way(f"coupled walk, k={K} (ours)", proposal="coupled", adl=fixed(K)),
        pair.way("tree, 11 nodes (ours)", proposal="tree", adl=fixed(11)),
        pair.way("as served (ours)"),
    ]
    return await alternate(pair, experiment.prompts, ways, temperature, plan.tokens), ways


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
        f"way here is {rule}; beside it stand its figures on {_BESIDE}, and in place of EAGLE-3 "
        "the same network, one token a pass. Their tau is taken as MAT.",
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
    deer, ar = columns[DEER], columns[_AR]
    means = theirs.DEER_MEANS[temperature]
    all_means = {name: target["DEER"] for name, target in means.items()}
    groups = families(deer)
    beside = means[_BESIDE]
    found = [
        all_of(
            "DEER is faster than plain decoding on every task",
            printed(speedup, all_means),
            ", ".join(f"{group} {times(in_family(deer, group, speedup))}" for group in groups),
            (beats_plain(of_family(deer, group)) for group in groups),
        ),
        higher(
            "DEER is faster than autoregressive drafting",
            printed(speedup, beside),
            deer,
            ar,
            speedup,
        ),
        higher(
            "DEER accepts more than autoregressive drafting",
            printed(mat, beside),
            deer,
            ar,
            mat,
        ),
    ]
    if sampled is not None:
        found.append(
            higher(
                "DEER gains more at temperature 0 than at 0.6",
                "; ".join(_both_temperatures(target) for target in means),
                deer,
                sampled[DEER],
                speedup,
            )
        )
    return tuple(found)


def _both_temperatures(target: str) -> str:
    figures = {f"at {t:g}": theirs.DEER_MEANS[t][target]["DEER"] for t in (0.0, 0.6)}
    return f"{target} {printed(speedup, figures)}"
