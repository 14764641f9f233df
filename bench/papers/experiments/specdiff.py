"""SpecDiff Table 4, with and without initialisation, and Fig. 2, gamma against T."""

from __future__ import annotations

from statistics import fmean, median

from bench.papers import plots, theirs
from bench.papers.alternate import alternate, limited
from bench.papers.claims import Claim, even, grows_each, higher, peaks_below
from bench.papers.experiment import Experiment, raw
from bench.papers.experiments.specdiff_analysis import analysis, by_task
from bench.papers.report import Section, Table, number, percent, times
from bench.papers.settings import fixed
from bench.papers.stats import (
    ALPHA,
    MAT,
    SPEED,
    Measure,
    repeated,
    same_tokens,
    speedup,
    values,
)
from bench.papers.ways import Column, Promise, Sample

# Theirs is 100 of 1024 tokens.
_FIRST_SHARE = 0.1
_WITHOUT, _WITH = "without initialisation", "with initialisation (`ar`)"
# Lengths work alike where the slowest is within this share of the fastest.
_ALIKE = 0.1

Cell = tuple[int, int]


async def table_4(experiment: Experiment) -> list[Section]:
    """Measure diffusion drafts from the first token on, and after an autoregressive beginning."""
    pair, size = experiment.pair, experiment.plan.opening
    count = round(_FIRST_SHARE * size.tokens)
    ways = [
        pair.way(
            name,
            proposal="argmax",
            adl=fixed(pair.block),
            draft={"warmup_proposal": first, "warmup_tokens": count if first != "diffusion" else 0},
        )
        for name, first in (
            (_WITHOUT, "diffusion"),
            (_WITH, "ar"),
            ("initialisation by prompt lookup (ours)", "lookup"),
        )
        if first != "ar" or pair.text_alone
    ]
    prompts = limited(experiment.prompts, size)
    columns = await alternate(pair, prompts, ways, 0.0, size.tokens)
    behind = _alpha_behind(count)
    rows = tuple(
        (
            name,
            ALPHA.text(column),
            behind.text(column),
            times(median(values(column, speedup))),
            number(MAT.of(column)),
            percent(repeated(column)),
            same_tokens(column, Promise.TOKENS, 0.0),
        )
        for name, column in columns.items()
    )
    head = (
        "way here",
        "alpha",
        f"behind token {count}",
        "speedup",
        "MAT",
        "repetition",
        "same tokens",
    )
    return [
        Section(
            "SpecDiff Table 4: with and without initialisation",
            f"Temperature 0, gamma = {pair.block}, T = 1, {size.tokens} tokens after each of "
            f"{len(prompts)} prompts; the first {count} are drafted by the same network, one token "
            "a pass. alpha is the share of tested draft tokens that was accepted; behind those "
            "first ones all drafts are by diffusion. Theirs with "
            "initialisation is their Table 2, which names no speedup in the text at hand.",
            (Table(head, rows), _their_table_4()),
            _claims_4(columns[_WITH], columns[_WITHOUT], behind) if _WITH in columns else (),
            figures=raw(columns),
        ),
        by_task(columns[_WITHOUT], pair.block),
    ]


def _claims_4(first: Column, without: Column, behind: Measure) -> tuple[Claim, ...]:
    return (
        higher(
            "initialisation raises the diffusion drafts' alpha", _alphas(), first, without, behind
        ),
        higher("initialisation raises speed", "Sec. 6.2, Table 4", first, without, SPEED),
    )


def _alpha_behind(count: int) -> Measure:
    """Return alpha over the rounds that begin behind so many tokens of the text."""

    def parts(sample: Sample) -> tuple[float, float]:
        at = kept = tested = 0
        for spent in sample.decoded.rounds:
            if spent.drafted and at >= count:
                accepted = min(spent.tokens - 1, spent.drafted)
                kept += accepted
                tested += accepted + (accepted < spent.drafted)
            at += spent.tokens
        return float(kept), float(tested)

    return Measure(parts)


def _alphas() -> str:
    return "; ".join(
        f"{name} {without.alpha:.2f} without, {theirs.SPECDIFF_WITH[name].alpha:.2f} with"
        for name, without in theirs.SPECDIFF_WITHOUT.items()
    )


def _their_table_4() -> Table:
    rows = tuple(
        (
            name,
            number(without.alpha),
            times(without.speedup),
            number(theirs.SPECDIFF_WITH[name].alpha),
            times(theirs.SPECDIFF_WITH[name].speedup),
        )
        for name, without in theirs.SPECDIFF_WITHOUT.items()
    )
    head = ("theirs", "alpha without", "speedup without", "alpha with", "speedup with")
    return Table(head, rows, "Theirs, as printed:")


async def figure_2(experiment: Experiment) -> list[Section]:
    """Measure every length gamma with every number of denoising steps T."""
    pair, plan = experiment.pair, experiment.plan
    torch = await pair.drafter(dtype="bfloat16")
    lengths = (*(gamma for gamma in plan.gammas if gamma < pair.block), pair.block)
    every = plan.diffusion_steps if pair.text_alone else (1,)
    cells: dict[str, Cell] = {
        f"gamma={gamma}, T={steps}": (gamma, steps) for gamma in lengths for steps in every
    }
    ways = [
        pair.way(name, torch, proposal="argmax", adl=fixed(gamma), draft={"steps": steps})
        for name, (gamma, steps) in cells.items()
    ]
    prompts = limited(experiment.prompts, plan.refined)
    found = await alternate(pair, prompts, ways, 0.0, plan.refined.tokens)
    columns = {cell: found[name] for name, cell in cells.items()}
    path = experiment.plot("specdiff_figure2")
    steps = ("T, denoising steps", every)
    gammas = ("gamma, draft length", lengths)
    speeds = {cell: median(values(column, speedup)) for cell, column in columns.items()}
    mats = {cell: MAT.of(column) for cell, column in columns.items()}
    plots.grids(
        path,
        {
            "speedup": [[speeds[g, t] for t in steps[1]] for g in gammas[1]],
            "accepted tokens per draft": [[mats[g, t] for t in steps[1]] for g in gammas[1]],
        },
        gammas,
        steps,
    )
    repetition = fmean(repeated(column) for column in columns.values())
    rows = tuple(
        (
            str(g),
            *(f"{times(speeds[g, t])} / {number(mats[g, t])}" for t in steps[1]),
        )
        for g in gammas[1]
    )
    return [
        Section(
            "SpecDiff Fig. 2: gamma against T",
            f"Temperature 0, {plan.refined.tokens} tokens after each of {len(prompts)} prompts, "
            "the drafter in bf16 on torch, which refinement needs: compare cells with each other. "
            f"Repetition of the texts: {repetition:.0%}. The paper draws surfaces without numbers.",
            (
                Table(
                    ("gamma", *(f"T={t}" for t in steps[1])), rows, "Speedup / accepted per draft:"
                ),
            ),
            _claims(columns),
            (path.name,),
            raw(found),
        ),
        analysis({gamma: columns[gamma, 1] for gamma in gammas[1]}),
    ]


def _claims(columns: dict[Cell, Column]) -> tuple[Claim, ...]:
    gammas = sorted({gamma for gamma, _ in columns})
    steps = sorted({step for _, step in columns})
    longest = gammas[-1]
    at_longest = {f"T={step}": columns[longest, step] for step in steps}
    by_gamma = [{f"T={s}": columns[gamma, s] for s in steps} for gamma in gammas[1:]]
    long = {f"gamma={g}": columns[g, steps[0]] for g in gammas if g >= longest / 2}
    robust = even(
        f"speed is robust to gamma (within {_ALIKE:.0%})",
        "10 to 20 worked well",
        long,
        SPEED,
        _ALIKE,
    )
    if len(steps) == 1:
        return (robust,)
    return (
        grows_each(
            "more steps raise the tokens accepted per draft",
            "drawn in Fig. 2, right",
            by_gamma,
            MAT,
        ),
        peaks_below(
            f"the fastest T is at most {theirs.SPECDIFF_MOST_STEPS}",
            f"T <= {theirs.SPECDIFF_MOST_STEPS}",
            {step: columns[longest, step] for step in steps},
            theirs.SPECDIFF_MOST_STEPS,
            SPEED,
        ),
        higher(
            "more steps cost speed",
            "drawn in Fig. 2, left",
            at_longest[f"T={steps[0]}"],
            at_longest[f"T={steps[-1]}"],
            SPEED,
        ),
        robust,
    )
