"""DEER Table 3, Fig. 6 and Fig. 8: what its two stages of alignment and its block length do."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from bench.compare.rows import median_interval
from bench.papers import plots, theirs
from bench.papers.alignment import Outcome, Setup, Variant, train_variants
from bench.papers.claims import Claim, above, every_above
from bench.papers.experiment import Experiment
from bench.papers.inference.bootstrap import Estimate, difference, estimate, quotient
from bench.papers.report import Section, Table, number
from foredraft_align.loop.objectives import Decaying, Deer
from foredraft_cli.prompts import held_out

_BLOCK = 16
_BLOCKS = (4, 8, 16, 32)
_REFINE_FROM = 0.7
_FIRST = Variant(Deer(refine_from=1.0), _BLOCK)
"""Stage I to the end: for as many steps as both stages together."""
_POINTS = 24
"""Of a curve."""


async def tables(experiment: Experiment) -> list[Section]:
    """Train each variant once, on the same texts; the sections share the drafters."""
    size = experiment.plan.ablation
    training = [row["text"] for row in held_out.rows(development=True)]
    rows = held_out.spread(held_out.rows(development=False), size.held_out)
    asked, modules = [row["text"] for row in rows], [row["module"] for row in rows]
    repeated = [training[number % len(training)] for number in range(size.texts)]
    variants = {"I": _FIRST, "own": Variant(Decaying(), _BLOCK)}
    variants |= {_alpha(a): Variant(Deer(a, _REFINE_FROM), _BLOCK) for a in theirs.DEER_ALPHAS}
    stable = Deer(theirs.DEER_ALPHAS[0], _REFINE_FROM)
    variants |= {f"block {b}": Variant(stable, b) for b in _BLOCKS if b != _BLOCK}
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(experiment.pair.target, Path(folder), size.tokens, size.steps)
        outcomes = train_variants(setup, repeated, asked, variants)
    both = outcomes[_alpha(theirs.DEER_ALPHAS[0])]
    blocks = {b: both if b == _BLOCK else outcomes[f"block {b}"] for b in _BLOCKS}
    how = (
        f"A drafter of 2 layers for the embedded target, {size.steps} steps of 8 texts on "
        f"{size.texts} texts of up to {size.tokens} tokens that the target wrote, "
        f"`foredraft_align`'s model and optimiser; MAT of one path on {len(asked)} held-out greedy "
        "texts. "
    )
    return [
        _table_3(how, outcomes, both, modules),
        _figure_6(experiment, how, outcomes),
        _figure_8(experiment, how, blocks, modules),
    ]


def _alpha(alpha: float) -> str:
    return f"I and II, alpha {alpha}"


def _table_3(
    how: str, outcomes: Mapping[str, Outcome], both: Outcome, modules: Sequence[str]
) -> Section:
    names = {"I": "stage I alone", _alpha(theirs.DEER_ALPHAS[0]): _alpha(theirs.DEER_ALPHAS[0])}
    names["own"] = "`decay`, soft labels (what `foredraft align` does by default)"
    rows = tuple((label, *_figures(outcomes[name])) for name, label in names.items())
    their = tuple((name, number(a), number(b)) for name, (a, b) in theirs.DEER_TABLE_3.items())
    return Section(
        "DEER Table 3: with and without stage II",
        how + f"Blocks of {_BLOCK}. Stage II takes the place of the last 30 % of stage I. The "
        "paper's 5.03 on LiveCodeBench is the mean of its Table 2, which has 4.62 there.",
        (
            Table(("trained by", *_HEAD), rows),
            Table(("their benchmark", "stage I", "I and II"), their, "Theirs, Qwen3-30B-A3B:"),
        ),
        _claims_3(outcomes["I"], both, modules),
        figures={name: list(each.mats) for name, each in outcomes.items()},
    )


def _claims_3(first: Outcome, both: Outcome, modules: Sequence[str]) -> tuple[Claim, ...]:
    gains = [b - a for a, b in zip(first.mats, both.mats, strict=True)]
    return (
        above(
            "stage II lets more tokens be accepted",
            ", ".join(f"{n} {a} to {b}" for n, (a, b) in theirs.DEER_TABLE_3.items()),
            f"{fmean(first.mats):.2f} to {fmean(both.mats):.2f}",
            _mean(modules, gains),
        ),
    )


def _figure_6(experiment: Experiment, how: str, outcomes: Mapping[str, Outcome]) -> Section:
    by_alpha = {alpha: outcomes[_alpha(alpha)] for alpha in theirs.DEER_ALPHAS}
    file = experiment.plot("deer_figure6")
    plots.lines(
        file,
        {f"alpha {alpha}": _curve(each.losses) for alpha, each in by_alpha.items()},
        ("step of stage II", "loss, nats, mean of the steps around"),
    )
    rows = tuple(
        (str(alpha), number(drift(_second(each.losses))), *_figures(each))
        for alpha, each in by_alpha.items()
    )
    losses = [_second(each.losses) for each in by_alpha.values()]
    return Section(
        "DEER Fig. 6: the weight's base alpha",
        how + "Drift is the mean loss of stage II's last fifth over that of its first; above 1 it "
        "rises. The loss here is divided by the sum of its weights.",
        (Table(("alpha", "drift", *_HEAD), rows),),
        (_stable(losses),),
        (file.name,),
        {str(alpha): list(each.losses) for alpha, each in by_alpha.items()},
    )


def _stable(losses: Sequence[Sequence[float]]) -> Claim:
    """Return the claim on three alphas' losses of stage II, in nats a step."""
    first, middle, last = map(_fifths, losses)
    return every_above(
        "the loss falls with alpha 1.01, rises slightly with 1.02 and diverges with 1.05",
        "drawn in Fig. 6",
        "drift " + ", ".join(f"{drift(each):.2f}" for each in losses),
        [
            estimate(_steps(first), lambda sums: 1 - quotient(sums)),
            estimate(_steps(middle), lambda sums: quotient(sums) - 1),
            estimate(_steps(last, middle), difference),
        ],
    )


def _steps(*fifths: tuple[Sequence[float], Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    """Return for each step of a fifth the losses of the last fifth and of the first."""
    pairs = [zip(late, early, strict=True) for early, late in fifths]
    rows = zip(*pairs, strict=True)
    return [(str(step), [loss for pair in row for loss in pair]) for step, row in enumerate(rows)]


def _mean(modules: Sequence[str], values: Sequence[float]) -> Estimate:
    """Return the mean over texts, whose modules are given."""
    return estimate(
        [(module, (value, 1.0)) for module, value in zip(modules, values, strict=True)], quotient
    )


def _figure_8(
    experiment: Experiment, how: str, blocks: Mapping[int, Outcome], modules: Sequence[str]
) -> Section:
    file = experiment.plot("deer_figure8")
    means = {block: fmean(each.mats) for block, each in blocks.items()}
    plots.lines(file, {"here": dict(means)}, ("block length, tokens", "MAT"))
    rows = tuple((str(block), *_figures(each)) for block, each in blocks.items())
    return Section(
        "DEER Fig. 8: block length",
        how + "Each drafter is trained, and drafts, in blocks of one length; both stages, alpha "
        f"{theirs.DEER_ALPHAS[0]}.",
        (Table(("block", *_HEAD), rows),),
        _claims_8(blocks, modules),
        (file.name,),
        {str(block): asdict(each) for block, each in blocks.items()},
    )


def _claims_8(blocks: Mapping[int, Outcome], modules: Sequence[str]) -> tuple[Claim, ...]:
    shortest, short, *_, long, longest = (each.mats for each in blocks.values())
    gains = [b - a for a, b in zip(shortest, longest, strict=True)]
    bends = [(b - a) - (d - c) for a, b, c, d in zip(shortest, short, long, longest, strict=True)]
    return (
        every_above(
            "longer blocks let more tokens be accepted, and ever fewer more",
            "drawn in Fig. 8, blocks of 4 to 32",
            ", ".join(f"{block}: {fmean(each.mats):.2f}" for block, each in blocks.items()),
            [_mean(modules, gains), _mean(modules, bends)],
        ),
    )


_HEAD = ("MAT", "median of the texts", "95 % interval")


def _figures(outcome: Outcome) -> tuple[str, str, str]:
    low, high = median_interval(outcome.mats)
    middle = sorted(outcome.mats)[len(outcome.mats) // 2]
    return number(fmean(outcome.mats)), number(middle), f"{low:.2f}-{high:.2f}"


def _second(losses: Sequence[float]) -> Sequence[float]:
    """Return the losses of stage II."""
    return losses[round(_REFINE_FROM * len(losses)) :]


def drift(losses: Sequence[float]) -> float:
    """Return the mean of the last fifth over that of the first."""
    early, late = _fifths(losses)
    return fmean(late) / fmean(early)


def _fifths(losses: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    fifth = max(1, len(losses) // 5)
    return losses[:fifth], losses[-fifth:]


def _curve(losses: Sequence[float]) -> dict[int, float | None]:
    second = _second(losses)
    width = max(1, len(second) // _POINTS)
    return {
        at + 1: fmean(second[at : at + width]) for at in range(0, len(second) - width + 1, width)
    }
