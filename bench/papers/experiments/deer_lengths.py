"""DEER Table 4, Fig. 4 and Fig. 7: how long the accepted drafts are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bench.papers import plots, theirs
from bench.papers.claims import Claim, all_of, that
from bench.papers.experiment import Experiment
from bench.papers.report import Section, Table, number, percent
from bench.papers.stats import accepted, at_least, pooled_mat, rate, repeated, survival
from bench.papers.ways import Column

# A share of fewer rounds is not drawn.
_LEAST_ROUNDS = 10


def section(
    experiment: Experiment,
    runs: Mapping[str, Mapping[str, Column]],
    blocks: Mapping[str, int],
    rivals: tuple[str, str],
) -> Section:
    """Return what accepted lengths say, of the runs of Tables 1 and 2 by temperature.

    blocks has the ways to tell of and the longest path of each; rivals are DEER's way and the
    autoregressive one, which the claims compare at temperature 0.
    """
    columns = {
        f"{name}, temperature {temperature}": (by_way[name], block)
        for temperature, by_way in runs.items()
        for name, block in blocks.items()
    }
    counts = {name: (accepted(column), block) for name, (column, block) in columns.items()}
    files = _plot(experiment, counts, rivals)
    rows = tuple(
        (
            name,
            str(block),
            str(max(accepted(column), default=0)),
            percent(at_least(accepted(column), theirs.DEER_LONG)),
            number(pooled_mat(column)),
            percent(repeated(column)),
        )
        for name, (column, block) in columns.items()
    )
    head = ("way here", "block", "longest accepted", "rounds of 8 and more", "MAT", "repetition")
    deer, rival = (accepted(runs["0"][name]) for name in rivals)
    return Section(
        "DEER Table 4, Fig. 4 and Fig. 7: accepted lengths",
        "From the runs of Tables 1 and 2, all families. Their block is 32 tokens. The last length "
        "of a distribution also holds what a longer block would have accepted. The second plot "
        "has the share accepted at each position of the drafts accepted so far: what a drafter "
        "that builds on its own earlier tokens should lose with depth.",
        (Table(head, rows), _their_table()),
        _claims((deer, blocks[rivals[0]]), (rival, blocks[rivals[1]])),
        files,
        {name: dict(sorted(found.items())) for name, (found, _) in counts.items()},
    )


def _plot(
    experiment: Experiment,
    counts: Mapping[str, tuple[Counter[int], int]],
    rivals: tuple[str, str],
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
            if name.startswith(rivals)
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


def _claims(deer: tuple[Counter[int], int], rival: tuple[Counter[int], int]) -> tuple[Claim, ...]:
    counts, block = deer
    longest, rivals_longest = max(counts, default=0), max(rival[0], default=0)
    long = at_least(counts, theirs.DEER_LONG)
    third = block // 3
    early, late = rate(counts, range(third)), rate(counts, range(block - third, block))
    return (
        all_of(
            "whole blocks are accepted, longer than any autoregressive draft",
            ", ".join(f"{name} {d}, EAGLE-3 {e}" for name, (e, d) in theirs.DEER_TABLE_4.items()),
            f"{longest} of {block}, autoregressive {rivals_longest} of {rival[1]}",
            (longest == block, longest > rivals_longest),
        ),
        that(
            f"over {theirs.DEER_LONG_SHARE:.0%} of rounds accept {theirs.DEER_LONG} tokens or more",
            ", ".join(f"{name} {share:.1%}" for name, share in theirs.DEER_LONG_SHARES.items()),
            f"{long:.1%}",
            long > theirs.DEER_LONG_SHARE,
        ),
        that(
            "the last length is more frequent than the one before it (resurgence)",
            "drawn in Fig. 7",
            f"{counts[block]} rounds of {block} tokens, {counts[block - 1]} of {block - 1}",
            counts[block] > counts[block - 1],
        ),
        that(
            "acceptance does not fall with depth",
            "argued in Sec. 3.2",
            f"{number(early)} over the first third of positions, {number(late)} over the last",
            None if early is None or late is None else late >= early,
        ),
    )
