"""Beyond the papers: what each proposal gets accepted by each rule, on paths and on trees."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from bench.papers.alternate import alternate, limited
from bench.papers.claims import Claim, exactly, higher, within_each
from bench.papers.experiment import Experiment, drafted_per_round, raw
from bench.papers.report import Section, Table, number, percent, times
from bench.papers.settings import fixed
from bench.papers.stats import MAT, SPEED, repeated, same_tokens, speedup, values
from bench.papers.ways import Column, Promise, Way

_NODES = 31
_ARGMAX, _CPS, _PATH = "argmax", "cps", "coupled walk"
_SMALL, _TREE = "tree, as many nodes as a block", f"tree, {_NODES} nodes"
_REJECTION = "sampled; rule `rejection`"
# A way's name: the request's `speculative` object. Without a rule's name it is `coupled`; without a
# length it drafts whole blocks.
_WAYS: dict[str, dict[str, Any]] = {
    _ARGMAX: {"proposal": "argmax"},
    _PATH: {"proposal": "coupled"},
    _CPS: {"proposal": "cps"},
    _SMALL: {"proposal": "tree"},
    _TREE: {"proposal": "tree", "adl": fixed(_NODES)},
    _REJECTION: {"proposal": "sampled", "acceptance": "rejection"},
    "sampled; rule `block`": {"proposal": "sampled", "acceptance": "block"},
    "argmax; rule `rejection`": {"proposal": "argmax", "acceptance": "rejection"},
    "cps; rule `l2r`": {"proposal": "cps", "acceptance": "l2r"},
}
# At temperature 0 all rules keep the argmax, and a walk is argmax.
_GREEDY = (_ARGMAX, _CPS, _SMALL, _TREE)
_TEMPERATURES = (0.6, 0.8, 1.0)

Columns = dict[str, Column]


async def rules(experiment: Experiment) -> list[Section]:
    """Measure every proposal and rule; return accepted tokens first, then where time goes."""
    pair, plan = experiment.pair, experiment.plan
    prompts = limited(experiment.prompts, plan.sweep)
    whole = {"adl": fixed(pair.block)}
    ways = {name: pair.way(name, **whole | options) for name, options in _WAYS.items()}
    by_temperature: dict[float, Columns] = {}
    for temperature in (0.0, *_TEMPERATURES):
        used = [ways[name] for name in _GREEDY] if temperature == 0 else list(ways.values())
        found = await alternate(pair, prompts, used, temperature, plan.sweep.tokens, plan.seeds)
        by_temperature[temperature] = found
    drawn = {t: by_temperature[t] for t in _TEMPERATURES}
    return [
        Section(
            "Accepted tokens by proposal and rule",
            f"{plan.sweep.tokens} tokens after each of {len(prompts)} prompts. Each cell: MAT / "
            "speedup. The rule `coupled` gives plain decoding's own tokens; `rejection` and "
            "`block` give its law, with other tokens; `l2r` (DiffuSpec Eq. 1 and 5) gives another "
            "one.",
            (_by_rule(ways, drawn),),
            _rule_claims(drawn),
            figures={str(t): raw(columns) for t, columns in drawn.items()},
            heading="what should be seen",
        ),
        Section(
            "Argmax, path search and trees at temperature 0",
            f"{plan.sweep.tokens} tokens after each of {len(prompts)} prompts, in the same run. "
            "Compute is a median over prompts of a round's, prompt included.",
            (_greedy_table(by_temperature[0.0]),),
            _greedy_claims(by_temperature[0.0]),
            figures=raw(by_temperature[0.0]),
            heading="what should be seen",
        ),
    ]


def _by_rule(ways: dict[str, Way], drawn: dict[float, Columns]) -> Table:
    head = ("proposal", *(f"temperature {t:g}" for t in drawn), "repetition", "same tokens")
    rows = []
    for name, way in ways.items():
        columns = [by_way[name] for by_way in drawn.values()]
        cells = [f"{MAT.of(c):.2f} / {times(median(values(c, speedup)))}" for c in columns]
        together = [sample for column in columns for sample in column]
        same = same_tokens(together, way.promise, min(drawn))
        rows.append((name, *cells, percent(repeated(together)), same))
    return Table(head, tuple(rows))


def _rule_claims(drawn: dict[float, Columns]) -> tuple[Claim, ...]:
    first, *_, last = drawn.values()
    coupled = [name for name, options in _WAYS.items() if "acceptance" not in options]
    return (
        within_each(
            f"`coupled` on a tree of {_NODES} nodes accepts at least as much as `rejection` on a "
            "path",
            "-",
            {f"at {t:g}": (c[_TREE], c[_REJECTION]) for t, c in drawn.items()},
            MAT,
        ),
        higher(
            "sampled drafts are accepted less at a higher temperature (SpecDiff App. E)",
            "argued in App. E: q is over-confident",
            first[_REJECTION],
            last[_REJECTION],
            MAT,
        ),
        exactly(
            "`coupled` gives plain decoding's tokens, on paths and trees",
            "-",
            "every text compared",
            all(
                same_tokens(columns[name], Promise.TOKENS, t) == "100%"
                for t, columns in drawn.items()
                for name in coupled
            ),
        ),
    )


def _round_ms(column: Column) -> tuple[float, float]:
    """Return the median compute of a round in drafter and verifier, in ms."""

    def of(seconds: list[float]) -> float:
        rounds = [max(1, sample.decoded.run.draft_rounds) for sample in column]
        return median(1e3 * s / n for s, n in zip(seconds, rounds, strict=True))

    return (
        of([sample.decoded.drafting_s for sample in column]),
        of([sample.decoded.verifying_s for sample in column]),
    )


def _greedy_table(columns: Columns) -> Table:
    head = (
        "proposal",
        "MAT",
        "speedup",
        "drafted per round",
        "drafting, ms",
        "verification, ms",
        "repetition",
        "same tokens",
    )
    rows = []
    for name, column in columns.items():
        drafting, verifying = _round_ms(column)
        rows.append(
            (
                name,
                number(MAT.of(column)),
                times(median(values(column, speedup))),
                number(drafted_per_round(column)),
                number(drafting),
                number(verifying),
                percent(repeated(column)),
                same_tokens(column, Promise.TOKENS, 0.0),
            )
        )
    return Table(head, tuple(rows))


def _greedy_claims(columns: Columns) -> tuple[Claim, ...]:
    return (
        higher("a tree accepts more than path search", "-", columns[_TREE], columns[_CPS], MAT),
        higher("path search accepts more than argmax", "-", columns[_CPS], columns[_ARGMAX], MAT),
        _pays_off("a tree's tokens turn into time", columns[_TREE], columns[_CPS]),
        _pays_off("path search's tokens turn into time", columns[_CPS], columns[_ARGMAX]),
    )


def _pays_off(text: str, more: Column, less: Column) -> Claim:
    """Return the claim that the first way is faster too, with what its rounds cost."""
    listed = []
    for column in (more, less):
        drafting, verifying = _round_ms(column)
        listed.append(
            f"{times(median(values(column, speedup)))} with {MAT.of(column) + 1:.2f} tokens "
            f"for {drafting + verifying:.1f} ms of compute"
        )
    claim = higher(text, "-", more, less, SPEED)
    return replace(claim, ours=f"{' against '.join(listed)}; {claim.ours}")
