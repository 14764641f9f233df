"""SpecDiff Table 4, with and without initialisation, and Fig. 2, gamma against T."""

from __future__ import annotations

from statistics import fmean, median

from bench.papers import plots, theirs
from bench.papers.alternate import alternate, limited
from bench.papers.claims import Claim, all_of, beats, higher, that
from bench.papers.experiment import Experiment, raw
from bench.papers.report import Section, Table, number, percent, times
from bench.papers.settings import K, fixed
from bench.papers.stats import (
    alpha,
    mat,
    pooled_alpha,
    pooled_mat,
    repeated,
    same_tokens,
    speedup,
    values,
)
from bench.papers.ways import Column, Promise

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
            adl=fixed(K),
            draft={"warmup_proposal": first, "warmup_tokens": count if first != "diffusion" else 0},
        )
        for name, first in (
            (_WITHOUT, "diffusion"),
            (_WITH, "ar"),
            ("initialisation by prompt lookup (ours)", "lookup"),
        )
    ]
    prompts = limited(experiment.prompts, size)
    columns = await alternate(pair, prompts, ways, 0.0, size.tokens)
    rows = tuple(
        (
            name,
            number(pooled_alpha(column)),
            times(median(values(column, speedup))),
            number(pooled_mat(column)),
            percent(repeated(column)),
            same_tokens(column, Promise.TOKENS, 0.0),
        )
        for name, column in columns.items()
    )
    head = ("way here", "alpha", "speedup", "MAT", "repetition", "same tokens")
    return [
        Section(
            "SpecDiff Table 4: with and without initialisation",
            f"Temperature 0, gamma = {K}, T = 1, {size.tokens} tokens after each of "
            f"{len(prompts)} prompts; the first {count} are drafted by the same network, one token "
            "a pass. alpha is the share of tested draft tokens that was accepted. Theirs with "
            "initialisation is their Table 2, which names no speedup in the text at hand.",
            (Table(head, rows), _their_table_4()),
            (
                higher(
                    "initialisation raises alpha",
                    _alphas(),
                    columns[_WITH],
                    columns[_WITHOUT],
                    alpha,
                ),
                higher(
                    "initialisation raises speed",
                    "said in Sec. 6.2, Table 4",
                    columns[_WITH],
                    columns[_WITHOUT],
                    speedup,
                ),
            ),
            figures=raw(columns),
        )
    ]


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
    cells: dict[str, Cell] = {
        f"gamma={gamma}, T={steps}": (gamma, steps)
        for gamma in plan.gammas
        for steps in plan.diffusion_steps
    }
    ways = [
        pair.way(name, torch, proposal="argmax", adl=fixed(gamma), draft={"steps": steps})
        for name, (gamma, steps) in cells.items()
    ]
    prompts = limited(experiment.prompts, plan.refined)
    found = await alternate(pair, prompts, ways, 0.0, plan.refined.tokens)
    columns = {cell: found[name] for name, cell in cells.items()}
    path = experiment.plot("specdiff_figure2")
    steps = ("T, denoising steps", plan.diffusion_steps)
    gammas = ("gamma, draft length", plan.gammas)
    speeds = {cell: median(values(column, speedup)) for cell, column in columns.items()}
    mats = {cell: pooled_mat(column) for cell, column in columns.items()}
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
            _claims(columns, speeds),
            (path.name,),
            raw(found),
        )
    ]


def _claims(columns: dict[Cell, Column], speeds: dict[Cell, float]) -> tuple[Claim, ...]:
    gammas = sorted({gamma for gamma, _ in columns})
    steps = sorted({step for _, step in columns})
    few, many, longest = steps[0], steps[-1], gammas[-1]
    rises = [beats(columns[gamma, many], columns[gamma, few], mat) for gamma in gammas[1:]]
    best = max(speeds, key=lambda cell: speeds[cell])
    long = [speeds[gamma, best[1]] for gamma in gammas if gamma >= longest / 2]
    spread = 1 - min(long) / max(long)
    medians = ", ".join(
        f"T={step}: {median(values(columns[longest, step], mat)):.2f}" for step in steps
    )
    return (
        all_of(
            "more steps raise the tokens accepted per draft",
            "drawn in Fig. 2, right",
            f"at gamma={longest}: {medians}",
            rises,
        ),
        that(
            "the fastest T is at most 5",
            f"T <= {theirs.SPECDIFF_MOST_STEPS}",
            f"gamma={best[0]}, T={best[1]}: {speeds[best]:.2f}x",
            best[1] <= theirs.SPECDIFF_MOST_STEPS,
        ),
        higher(
            "more steps cost speed",
            "drawn in Fig. 2, left",
            columns[longest, few],
            columns[longest, many],
            speedup,
        ),
        that(
            f"speed is robust to gamma (within {_ALIKE:.0%})",
            "10 to 20 worked well",
            f"{spread:.0%} between the fastest and the slowest gamma from {longest / 2:g} on",
            spread <= _ALIKE,
        ),
    )
