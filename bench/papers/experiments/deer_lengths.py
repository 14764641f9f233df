"""DEER Table 4, Fig. 4 and Fig. 7: how long the accepted drafts are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bench.papers import plots, theirs
from bench.papers.claims import Claim, above, higher
from bench.papers.experiment import Experiment
from bench.papers.inference.bootstrap import Estimate, Floats, difference, estimate
from bench.papers.report import Section, Table, number, percent
from bench.papers.stats import MAT, Measure, accepted, at_least, repeated, survival
from bench.papers.ways import Column, Sample

# A share of fewer rounds is not drawn.
_LEAST_ROUNDS = 10


def section(
    experiment: Experiment,
    runs: Mapping[str, Mapping[str, Column]],
    blocks: Mapping[str, int],
    compared: tuple[str, ...],
) -> Section:
    """Return what accepted lengths say, of the runs of Tables 1 and 2 by temperature.

    blocks has the ways of the table and the longest path of each. The claims are on the
    ways compared, at temperature 0: DEER's, and the autoregressive one of as many tokens, if any.
    """
    columns = {
        f"{name}, temperature {temperature}": (by_way[name], block)
        for temperature, by_way in runs.items()
        for name, block in blocks.items()
    }
    counts = {name: (accepted(column), block) for name, (column, block) in columns.items()}
    files = _plot(experiment, counts, compared)
    rows = tuple(
        (
            name,
            str(block),
            str(max(accepted(column), default=0)),
            percent(at_least(accepted(column), theirs.DEER_LONG)),
            number(MAT.of(column)),
            percent(repeated(column)),
        )
        for name, (column, block) in columns.items()
    )
    head = ("way here", "block", "longest accepted", "rounds of 8 and more", "MAT", "repetition")
    return Section(
        "DEER Table 4, Fig. 4 and Fig. 7: accepted lengths",
        "From the runs of Tables 1 and 2, all families. Their block is 32 tokens. The last length "
        "of a distribution also holds what a longer block would have accepted. The second plot "
        "has the share accepted at each position of the drafts accepted so far: what a drafter "
        "that builds on its own earlier tokens should lose with depth.",
        (Table(head, rows), _their_table()),
        _claims([runs["0"][name] for name in compared], blocks[compared[0]]),
        files,
        {name: dict(sorted(found.items())) for name, (found, _) in counts.items()},
    )


def _plot(
    experiment: Experiment,
    counts: Mapping[str, tuple[Counter[int], int]],
    compared: tuple[str, ...],
) -> tuple[str, ...]:
    lengths, positions = experiment.plot("deer_figure7"), experiment.plot("deer_positions")
    names = {name: name.replace("`", "") for name in counts}
    plots.lines(
        lengths,
        {names[name]: _shares(found, block) for name, (found, block) in counts.items()},
        ("accepted draft tokens of a round", "share of rounds"),
        log=True,
    )
    plots.lines(
        positions,
        {
            names[name]: dict(enumerate(survival(found, block, _LEAST_ROUNDS), 1))
            for name, (found, block) in counts.items()
            # An extended block ends where it chose to, which is no refusal.
            if name.startswith(compared)
        },
        ("position in the draft", "accepted, of drafts accepted so far"),
    )
    return lengths.name, positions.name


def _shares(counts: Counter[int], block: int) -> dict[int, float | None]:
    total = sum(counts.values())
    return {n: counts[n] / total if counts[n] else None for n in range(block + 1)}


def _their_table() -> Table:
    shares = {name: percent(share) for name, share in theirs.DEER_LONG_SHARES.items()}
    rows = tuple(
        (target, str(eagle), str(deer), shares.get(target, "-"))
        for target, (eagle, deer) in theirs.DEER_TABLE_4.items()
    )
    head = ("their target", "longest, EAGLE-3", "longest, DEER", "DEER, 8 and more (Fig. 4)")
    return Table(head, rows, "Theirs:")


def _claims(ways: Sequence[Column], block: int) -> tuple[Claim, ...]:
    """Return the claims on accepted lengths; all ways draft so many tokens."""
    deer, *rivals = ways
    long, ends = _LONG.estimate(deer), _last_against_before(deer, block)
    falls = _by_depth(deer, block)
    return (
        above(
            f"over {theirs.DEER_LONG_SHARE:.0%} of rounds accept {theirs.DEER_LONG} tokens or more",
            ", ".join(f"{name} {share:.1%}" for name, share in theirs.DEER_LONG_SHARES.items()),
            f"{long.value:.1%}",
            long,
            theirs.DEER_LONG_SHARE,
        ),
        above(
            "the last token of a block is accepted more often than those before it (resurgence)",
            "drawn in Fig. 7",
            f"{ends.value:+.2f}, of drafts accepted so far, against the block's second half",
            ends,
        ),
        above(
            "acceptance does not fall with depth",
            "argued in Sec. 3.2",
            f"{falls.value:+.2f} from the first third of positions to the last",
            falls,
        ),
        *(claim for rival in rivals for claim in _against(deer, rival, block)),
    )


def _against(deer: Column, rival: Column, block: int) -> tuple[Claim, ...]:
    printed = ", ".join(f"{name} {d}, EAGLE-3 {e}" for name, (e, d) in theirs.DEER_TABLE_4.items())
    falls, rivals_falls = _by_depth(deer, block), _by_depth(rival, block)
    less = estimate([*_depths(deer, block), *_depths(rival, block, 4)], _difference_of_differences)
    return (
        higher(
            f"drafts of {theirs.DEER_LONG} tokens and more are accepted more often than "
            "autoregressive ones",
            f"longest: {printed}",
            deer,
            rival,
            _LONG,
        ),
        above(
            "acceptance falls less with depth than autoregressive drafting's",
            "argued in Sec. 3.2",
            f"{falls.value:+.2f} against {rivals_falls.value:+.2f}",
            less,
        ),
    )


def _rounds(sample: Sample, least: int) -> int:
    return sum(rounds for kept, rounds in sample.decoded.accepted.items() if kept >= least)


_LONG = Measure(
    lambda sample: (_rounds(sample, theirs.DEER_LONG), _rounds(sample, 0)), unit="{:.1%}"
)


def _tested(sample: Sample, before: range) -> tuple[float, float]:
    """Return of tokens with so many accepted before them how many were accepted and tried."""
    held = sum(_rounds(sample, i + 1) for i in before)
    return float(held), float(sum(_rounds(sample, i) for i in before))


def _last_against_before(column: Column, block: int) -> Estimate:
    last, others = range(block - 1, block), range(block // 2, block - 1)
    rows = [(s.prompt.module, (*_tested(s, last), *_tested(s, others))) for s in column]
    return estimate(rows, difference)


def _by_depth(column: Column, block: int) -> Estimate:
    return estimate(_depths(column, block), lambda sums: difference(sums[..., :4]))


def _depths(column: Column, block: int, at: int = 0) -> list[tuple[str, Sequence[float]]]:
    """Return each prompt's summands for the last and the first third, from column `at` of 8 on."""
    third = block // 3
    early, late = range(third), range(block - third, block)
    zeros = (0.0,) * 4
    rows: list[tuple[str, Sequence[float]]] = []
    for sample in column:
        found = (*_tested(sample, late), *_tested(sample, early))
        rows.append((sample.prompt.module, (*zeros, *found) if at else (*found, *zeros)))
    return rows


def _difference_of_differences(sums: Floats) -> Floats:
    found: Floats = difference(sums[..., :4]) - difference(sums[..., 4:])
    return found
