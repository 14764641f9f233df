"""DiffuSpec Tables 2 and 4, CPS and ADL with and without each other, and Fig. 4, time by stage."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import numpy as np

from bench.papers import plots, theirs
from bench.papers.alternate import alternate
from bench.papers.claims import Claim, below, higher, printed
from bench.papers.experiment import Experiment, family_table, raw
from bench.papers.experiments.diffuspec_methods import SPS
from bench.papers.inference.bootstrap import Estimate, Floats, estimate
from bench.papers.report import Section, Table, number, times
from bench.papers.settings import SEARCH, adl, fixed
from bench.papers.stats import (
    MAT,
    SPEED,
    Measure,
    families,
    of_family,
    repeated,
    speedup,
    values,
)
from bench.papers.ways import Column, Sample

# A stage below this share of a round is minor.
_MINOR = 0.05


async def ablation(experiment: Experiment) -> list[Section]:
    """Measure CPS and ADL with and without each other, and where a round's time goes."""
    pair, plan = experiment.pair, experiment.plan
    searching = await pair.drafter(cps=SEARCH)
    names = {
        (True, True): "CPS, ADL",
        (True, False): "CPS, whole block",
        (False, True): "argmax, ADL",
        (False, False): "argmax, whole block",
    }
    ways = [
        pair.way(
            name,
            searching,
            proposal="cps" if cps else "argmax",
            adl=adl(pair.block) if follows else fixed(pair.block),
        )
        for (cps, follows), name in names.items()
    ]
    sps = [pair.way(SPS, proposal="ar", adl=fixed(pair.block))] if pair.text_alone else []
    columns = await alternate(pair, experiment.prompts, [*ways, *sps], 0.0, plan.tokens)
    both = {key: columns[name] for key, name in names.items()}
    means = {name: theirs.DIFFUSPEC_TABLE_2[key] for key, name in names.items()}
    return [
        Section(
            "DiffuSpec Tables 2 and 4: CPS and ADL, with and without",
            f"Temperature 0, {plan.tokens} tokens after each of {len(experiment.prompts)} prompts. "
            "Without CPS a draft is each slot's best candidate; without ADL it always has "
            f"{pair.block} tokens. The paper's Table 2 has not the means of its Table 4: both "
            "are given with the latter.",
            (
                family_table(columns, ways, 0.0, means, "Table 2:"),
                _table_4(both),
                _their_table_4(),
            ),
            _claims_2(both),
            figures=raw(columns),
        ),
        _figure_4(experiment, both, columns.get(SPS)),
    ]


def _table_4(both: dict[tuple[bool, bool], Column]) -> Table:
    groups = families(both[True, True])
    rows = tuple(
        (
            *_marks(key),
            *(
                f"{MAT.of(of_family(column, group)):.2f} / "
                f"{median(values(of_family(column, group), speedup)):.2f}x / "
                f"{repeated(of_family(column, group)):.0%}"
                for group in groups
            ),
        )
        for key, column in both.items()
    )
    caption = "Table 4, here: MAT / speedup / repetition."
    return Table(("CPS", "ADL", *groups), rows, caption)


def _their_table_4() -> Table:
    rows = tuple(
        (*_marks(key), *map(_pair, (*figures, _mean(figures), theirs.DIFFUSPEC_TABLE_2[key])))
        for key, figures in theirs.DIFFUSPEC_TABLE_4.items()
    )
    head = ("CPS", "ADL", *theirs.DIFFUSPEC_TASKS, "mean of the tasks", "Table 2")
    return Table(head, rows, "Table 4, theirs: MAT / speedup.")


def _pair(figure: theirs.Figure) -> str:
    return f"{number(figure.mat)} / {times(figure.speedup)}"


def _mean(figures: Sequence[theirs.Figure]) -> theirs.Figure:
    return theirs.Figure(
        fmean(figure.speedup or 0.0 for figure in figures),
        fmean(figure.mat or 0.0 for figure in figures),
    )


def _marks(key: tuple[bool, bool]) -> tuple[str, str]:
    cps, adl = key
    return "yes" if cps else "no", "yes" if adl else "no"


def _claims_2(both: dict[tuple[bool, bool], Column]) -> tuple[Claim, ...]:
    all_on, cps, adl, none = (both[key] for key in theirs.DIFFUSPEC_TABLE_2)
    t_all, t_cps, t_adl, t_none = theirs.DIFFUSPEC_TABLE_2.values()
    with_cps, with_adl = {"with": t_cps, "without": t_none}, {"with": t_adl, "without": t_none}
    return (
        higher("CPS raises MAT", printed(MAT, with_cps), cps, none, MAT),
        higher("CPS raises speed", printed(SPEED, with_cps), cps, none, SPEED),
        higher("ADL raises MAT", printed(MAT, with_adl), adl, none, MAT),
        higher("ADL raises speed", printed(SPEED, with_adl), adl, none, SPEED),
        higher(
            "both together are faster than neither",
            printed(SPEED, {"both": t_all, "neither": t_none}),
            all_on,
            none,
            SPEED,
        ),
        higher(
            "CPS gains more speed than ADL",
            printed(SPEED, {"CPS": t_cps, "ADL": t_adl}),
            cps,
            adl,
            SPEED,
        ),
    )


_DRAFTING = Measure(
    lambda sample: (1e3 * sample.decoded.drafting_s, sample.decoded.run.draft_rounds)
)


def _drafting_ms(sample: Sample) -> float:
    return 1e3 * sample.decoded.drafting_s / max(1, sample.decoded.run.draft_rounds)


def _verifying_ms(sample: Sample) -> float:
    return 1e3 * sample.decoded.verifying_s / max(1, sample.decoded.run.draft_rounds)


def _figure_4(
    experiment: Experiment, both: dict[tuple[bool, bool], Column], sps: Column | None
) -> Section:
    """Return the time by stage: what CPS costs is what drafting takes more than with argmax."""
    cps, argmax = both[True, False], both[False, False]
    names: list[str] = []
    stages: dict[str, list[float]] = {"drafting": [], "CPS": [], "verification": []}
    for group in families(cps):
        drafting, plainly, verifying = (
            median(values(of_family(column, group), figure))
            for column, figure in (
                (cps, _drafting_ms),
                (argmax, _drafting_ms),
                (cps, _verifying_ms),
            )
        )
        if sps is not None:
            names.append(f"{group}: SPS")
            stages["drafting"].append(median(values(of_family(sps, group), _drafting_ms)))
            stages["CPS"].append(0.0)
            stages["verification"].append(median(values(of_family(sps, group), _verifying_ms)))
        names.append(f"{group}: DiffuSpec")
        stages["drafting"].append(min(plainly, drafting))
        stages["CPS"].append(max(0.0, drafting - plainly))
        stages["verification"].append(verifying)
    path = experiment.plot("diffuspec_figure4")
    plots.stacked(path, stages, names)
    rows = tuple(
        (name, *(f"{stages[stage][i]:.2f}" for stage in stages), _percent(_cps_share(stages, i)))
        for i, name in enumerate(names)
    )
    return Section(
        "DiffuSpec Fig. 4: time by stage",
        "Median compute of a round in the drafter and in the verifier, in ms, prompts included; "
        f"all draft {experiment.pair.block} tokens. CPS is what drafting takes more than with "
        "argmax, whose passes are the same. The paper draws bars; its text names CPS's share.",
        (Table(("family: method", *(f"{stage}, ms" for stage in stages), "CPS share"), rows),),
        _claims_4(cps, argmax, sps),
        (path.name,),
        stages | {"names": names},
    )


def _claims_4(cps: Column, argmax: Column, sps: Column | None) -> tuple[Claim, ...]:
    share = _cps_of(cps, argmax)
    minor = below(
        f"path search is minor overhead (under {_MINOR:.0%} of a round)",
        _percent(theirs.DIFFUSPEC_CPS_SHARE),
        f"{_percent(share.value)} over all rounds",
        share,
        _MINOR,
    )
    if sps is None:
        return (minor,)
    return (
        minor,
        higher(
            "drafting in one pass takes less time than SPS's of as many tokens, in ms",
            "Sec. 5.1",
            sps,
            argmax,
            _DRAFTING,
        ),
    )


def _cps_of(cps: Column, argmax: Column) -> Estimate:
    """Return the share of a round's compute that drafting takes more with CPS than with argmax."""
    rows = [(s.prompt.module, (*_spent(s), 0.0, 0.0)) for s in cps]
    rows += [(s.prompt.module, (0.0, 0.0, 0.0, *_spent(s)[::2])) for s in argmax]
    return estimate(rows, _more)


def _spent(sample: Sample) -> tuple[float, float, float]:
    decoded = sample.decoded
    return decoded.drafting_s, decoded.verifying_s, float(decoded.run.draft_rounds)


def _more(sums: Floats) -> Floats:
    drafting, verifying, rounds, plainly, fewer = np.moveaxis(sums, -1, 0)
    found: Floats = (drafting - plainly * rounds / fewer) / (drafting + verifying)
    return found


def _cps_share(stages: dict[str, list[float]], index: int) -> float:
    whole = sum(lengths[index] for lengths in stages.values())
    return stages["CPS"][index] / whole if whole else 0.0


def _percent(share: float) -> str:
    """Return a small share with a decimal."""
    return f"{share:.1%}"
