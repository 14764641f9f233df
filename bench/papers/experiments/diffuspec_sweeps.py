"""DiffuSpec Table 5, fixed lengths against ADL, and Fig. 2 of the same runs; Fig. 5, the knobs."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from bench.papers import plots, theirs
from bench.papers.alternate import alternate, limited
from bench.papers.claims import Claim, grows, higher, highest, levels_off, peaks_inside, printed
from bench.papers.experiment import Experiment, raw, sweep_table, their_table
from bench.papers.experiments.diffuspec_signals import figure_2
from bench.papers.report import Section
from bench.papers.settings import SEARCH, adl, fixed
from bench.papers.stats import MAT, SPEED, speedup, values
from bench.papers.ways import Column, Way

_ADL = "ADL"
_KNOBS = {"B": "beam", "M_max": "max_candidates", "tau": "tau"}


async def table_5(experiment: Experiment) -> list[Section]:
    """Measure fixed lengths against the two controllers, all with CPS."""
    pair, plan = experiment.pair, experiment.plan
    searching = await pair.drafter(cps=SEARCH)
    lengths: dict[str, dict[str, Any]] = {
        f"k={k}": fixed(k) for k in plan.draft_lengths(pair.block)
    }
    goodput = {"name": "goodput", "lengths": (0, *plan.draft_lengths(pair.block))}
    ways = [
        pair.way(name, searching, proposal="cps", adl=controller)
        for name, controller in (
            lengths | {_ADL: adl(pair.block), "goodput (ours)": goodput}
        ).items()
    ]
    prompts = limited(experiment.prompts, plan.sweep)
    columns = await alternate(pair, prompts, ways, 0.0, plan.sweep.tokens)
    path = experiment.plot("diffuspec_table5")
    plots.sweeps(path, [_panel("draft length", columns)])
    by_length = {name: columns[name] for name in lengths}
    return [
        Section(
            "DiffuSpec Table 5: fixed length against ADL",
            f"Temperature 0, CPS, {plan.sweep.tokens} tokens after each of {len(prompts)} prompts. "
            f"The drafter's block ends at {pair.block}, so lengths are half of theirs and less.",
            (
                sweep_table("length", columns, {_ADL: theirs.DIFFUSPEC_TABLE_5[_ADL]}),
                their_table("length", theirs.DIFFUSPEC_TABLE_5),
            ),
            _claims_5(columns, by_length),
            (path.name,),
            raw(columns),
        ),
        figure_2(experiment, by_length),
    ]


def _claims_5(columns: dict[str, Column], by_length: dict[str, Column]) -> tuple[Claim, ...]:
    adl, table = columns[_ADL], theirs.DIFFUSPEC_TABLE_5
    fixed_lengths = {name: figure for name, figure in table.items() if name != _ADL}
    return (
        grows("MAT grows with k", printed(MAT, fixed_lengths), by_length, MAT),
        peaks_inside(
            "speed peaks before the longest block", printed(SPEED, fixed_lengths), by_length, SPEED
        ),
        highest(
            "ADL is faster than any fixed length", printed(SPEED, table), adl, by_length, SPEED
        ),
        highest("ADL accepts more than any fixed length", printed(MAT, table), adl, by_length, MAT),
    )


async def figure_5(experiment: Experiment) -> list[Section]:
    """Measure each knob of Fig. 5, the others as in Sec. 5."""
    knobs = {"S": await _steps(experiment)} if experiment.pair.text_alone else {}
    for name, settings in (
        ("B", experiment.plan.beams),
        ("M_max", experiment.plan.caps),
        ("tau", experiment.plan.masses),
    ):
        knobs[name] = await _search(experiment, name, settings)
    path = experiment.plot("diffuspec_figure5")
    plots.sweeps(path, [_panel(name, columns) for name, columns in knobs.items()])
    steps = {f"S={s}": figure for s, figure in theirs.DIFFUSPEC_STEPS.items()}
    plan = experiment.plan
    return [
        Section(
            "DiffuSpec Fig. 5: S, B, M_max and tau",
            f"Temperature 0, CPS and ADL; S: {plan.refined.tokens} tokens after each of "
            f"{min(plan.refined.prompts, len(experiment.prompts))} prompts, the others: "
            f"{plan.sweep.tokens} after each of {min(plan.sweep.prompts, len(experiment.prompts))}."
            " Refinement needs the drafter in bf16 on torch, which is slower than the compiled "
            "int8 one: S = 1 is measured on it too, and is what S > 1 is to be compared with. The "
            "paper draws curves; the figures are those of its text.",
            (
                *(sweep_table(name, each, steps) for name, each in knobs.items() if name == "S"),
                their_table("S", steps),
                *(sweep_table(name, knobs[name]) for name in _KNOBS),
            ),
            (
                *(_claims_steps(knobs["S"], steps) if "S" in knobs else ()),
                *(_claim_peak(name, knobs[name], theirs.DIFFUSPEC_PEAKS[name]) for name in _KNOBS),
            ),
            (path.name,),
            {name: raw(columns) for name, columns in knobs.items()},
        )
    ]


async def _steps(experiment: Experiment) -> dict[str, Column]:
    pair, plan = experiment.pair, experiment.plan
    torch = await pair.drafter(cps=SEARCH, dtype="bfloat16")
    ways = [
        pair.way(f"S={steps}", torch, proposal="cps", adl=adl(pair.block), draft={"steps": steps})
        for steps in plan.steps
    ]
    prompts = limited(experiment.prompts, plan.refined)
    return await alternate(pair, prompts, ways, 0.0, plan.refined.tokens)


async def _search(
    experiment: Experiment, knob: str, settings: Iterable[float]
) -> dict[str, Column]:
    pair, plan = experiment.pair, experiment.plan
    ways: list[Way] = []
    for setting in settings:
        drafter = await pair.drafter(cps=SEARCH | {_KNOBS[knob]: setting})
        ways.append(pair.way(f"{knob}={setting:g}", drafter, proposal="cps", adl=adl(pair.block)))
    return await alternate(
        pair, limited(experiment.prompts, plan.sweep), ways, 0.0, plan.sweep.tokens
    )


def _panel(knob: str, columns: dict[str, Column]) -> plots.Sweep:
    settings = [name.rsplit("=", 1)[-1] for name in columns]
    speeds = [median(values(column, speedup)) for column in columns.values()]
    return plots.Sweep(knob, settings, [MAT.of(c) for c in columns.values()], speeds)


def _claims_steps(columns: dict[str, Column], table: dict[str, theirs.Figure]) -> tuple[Claim, ...]:
    first, *_, last = columns
    return (
        grows("more denoising steps raise MAT", printed(MAT, table), columns, MAT),
        higher(
            f"more denoising steps cost speed ({first} against {last})",
            printed(SPEED, table),
            columns[first],
            columns[last],
            SPEED,
        ),
    )


def _claim_peak(knob: str, columns: dict[str, Column], peaks: tuple[float, ...]) -> Claim:
    """Return the claim that MAT rises to the paper's setting, or the nearest one, no further."""
    names = {float(name.rsplit("=", 1)[-1]): name for name in columns}
    near = {names[min(names, key=lambda setting: abs(setting - each))] for each in peaks}
    return levels_off(
        f"more {knob} raises MAT up to a point, not beyond",
        "best at " + " to ".join(f"{each:g}" for each in peaks),
        columns,
        sorted(near),
        MAT,
    )
