"""DEER Table 5: tokens per second of sessions decoded at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from bench.papers import plots, theirs
from bench.papers.alternate import Together, together
from bench.papers.claims import Claim, above, every_above
from bench.papers.experiment import Experiment
from bench.papers.experiments.deer import DEER
from bench.papers.inference.bootstrap import Estimate, estimate, quotient
from bench.papers.report import Section, Table, number, percent, times
from bench.papers.settings import fixed
from bench.papers.ways import Way
from foredraft.repetition import repetition

_PLAIN = "plain"
_SERVED = "as served (ours)"
# Their gain is the highest at this batch.
_GROWS_TO = 8

# Turns of every way at one number of sessions.
Turns = dict[str, list[Together]]


async def table_5(experiment: Experiment) -> list[Section]:
    """Measure the throughput of 1 to 16 sessions, plainly and drafted for."""
    pair, plan = experiment.pair, experiment.plan
    ways = [
        pair.plain,
        pair.way(DEER, proposal="argmax", adl=fixed(pair.block)),
        pair.way(_SERVED),
    ]
    turns = {batch: await _turns(experiment, ways, batch) for batch in plan.batches}
    speeds = {
        way.name: {
            batch: median(turn.tokens_per_s for turn in by_way[way.name])
            for batch, by_way in turns.items()
        }
        for way in ways
    }
    path = experiment.plot("deer_table5")
    plots.lines(path, speeds, ("sessions at once", "tokens/s of all sessions"))
    return [
        Section(
            "DEER Table 5: sessions at once",
            f"Temperature 0, {plan.batch_tokens} tokens after each prompt, all sessions through "
            f"the same two engines; medians of {plan.batch_repeats} alternating turns. Theirs is "
            "without a KV cache, ours with.",
            (_table(turns, speeds),),
            _claims(turns, speeds),
            (path.name,),
            speeds,
        )
    ]


async def _turns(experiment: Experiment, ways: Sequence[Way], batch: int) -> Turns:
    """Return every way's turns, the ways one after the other on the same prompts."""
    plan, prompts = experiment.plan, experiment.prompts
    found: Turns = {way.name: [] for way in ways}
    for turn in range(plan.batch_repeats):
        chosen = [prompts[(turn * batch + i) % len(prompts)] for i in range(batch)]
        for way in ways:
            found[way.name].append(await together(experiment.pair, chosen, way, plan.batch_tokens))
    return found


def _table(turns: dict[int, Turns], speeds: dict[str, dict[int, float]]) -> Table:
    rows = []
    for batch, by_way in turns.items():
        for name, found in by_way.items():
            same = [
                text == plain
                for ours, base in zip(found, by_way[_PLAIN], strict=True)
                for text, plain in zip(ours.texts, base.texts, strict=True)
            ]
            texts = [text for turn in found for text in turn.texts]
            rows.append(
                (
                    str(batch),
                    name,
                    f"{speeds[name][batch]:.0f}",
                    times(speeds[name][batch] / speeds[_PLAIN][batch]),
                    percent(fmean(same)),
                    percent(fmean(map(repetition, texts))),
                    number(_theirs(name, batch)),
                )
            )
    head = (
        "sessions",
        "way here",
        "tokens/s",
        "against plain",
        "same tokens",
        "repetition",
        "their tokens/s",
    )
    return Table(head, tuple(rows))


def _theirs(name: str, batch: int) -> float | None:
    named = {_PLAIN: "AR", DEER: "DEER"}
    return theirs.DEER_TABLE_5[named[name]].get(batch) if name in named else None


def _claims(turns: dict[int, Turns], speeds: dict[str, dict[int, float]]) -> tuple[Claim, ...]:
    plain, deer = speeds[_PLAIN], speeds[DEER]
    gains = {batch: deer[batch] / plain[batch] for batch in plain}
    listed = ", ".join(f"{batch}: {gain:.2f}x" for batch, gain in gains.items())
    first, last = min(plain), max(plain)
    most = max(batch for batch in gains if batch <= _GROWS_TO)
    ours, base = theirs.DEER_TABLE_5["DEER"], theirs.DEER_TABLE_5["AR"]
    printed = ", ".join(f"{batch}: {ours[batch] / base[batch]:.2f}x" for batch in ours)
    return (
        every_above(
            "DEER is faster than plain decoding at every batch",
            printed,
            listed,
            [_mean(_gains(by_way)) for by_way in turns.values()],
        ),
        above(
            "DEER's throughput grows more with the batch than plain decoding's",
            printed,
            f"from {first} to {last} sessions {deer[last] / deer[first]:.2f}x and "
            f"{plain[last] / plain[first]:.2f}x",
            _mean(_ratios(_gains(turns[last]), _gains(turns[first]))),
        ),
        above(
            f"its gain over plain decoding grows with the batch up to {_GROWS_TO}",
            printed,
            listed,
            _mean(_ratios(_gains(turns[most]), _gains(turns[first]))),
        ),
    )


def _gains(by_way: Turns) -> list[float]:
    """Return the gain over plain decoding in each turn."""
    pairs = zip(by_way[DEER], by_way[_PLAIN], strict=True)
    return [deer.tokens_per_s / plain.tokens_per_s for deer, plain in pairs]


def _ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(first, second, strict=True)]


def _mean(ratios: Sequence[float]) -> Estimate:
    """Return the mean logarithm over turns, each with other prompts."""
    rows = [(str(turn), (math.log(ratio), 1.0)) for turn, ratio in enumerate(ratios)]
    return estimate(rows, quotient)
