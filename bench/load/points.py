"""What turns at one number of sessions come to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.compare.rows import median_interval
from bench.load.traffic import Turn


@dataclass(frozen=True, slots=True)
class Work:
    """What a verifier did: its passes, their rows and their seconds."""

    passes: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0

    def __sub__(self, before: Work) -> Work:
        return Work(
            self.passes - before.passes, self.rows - before.rows, self.seconds - before.seconds
        )


@dataclass(frozen=True, slots=True)
class CountedTurn:
    """A turn, and what the verifier did meanwhile."""

    turn: Turn
    work: Work


@dataclass(frozen=True, slots=True)
class Comparison:
    """Turns against others of the same requests, which alternated with them.

    ratio is the median of the quotients of their speeds, between low and high with a confidence of
    95 % (of few turns: all of them); identical is the share of texts that are the same.
    """

    ratio: float
    low: float
    high: float
    identical: float


def compare(ours: Sequence[Turn], theirs: Sequence[Turn]) -> Comparison:
    """Return how ours compare with theirs."""
    pairs = list(zip(ours, theirs, strict=True))
    ratios = [one.speed / other.speed for one, other in pairs]
    same = [
        a.tokens == b.tokens
        for one, other in pairs
        for a, b in zip(one.answers, other.answers, strict=True)
    ]
    low, high = median_interval(ratios)
    return Comparison(median(ratios), low, high, sum(same) / len(same))


@dataclass(frozen=True, slots=True)
class Costs:
    """What a token took in a way of decoding, on average: passes of the verifier, their rows, and
    the milliseconds outside them.

    A shared machine changes its speed from one turn to the next, and with it all speeds and their
    ratios, but not the passes and rows.
    """

    passes: float
    rows: float
    outside_ms: float


@dataclass(frozen=True, slots=True)
class Point:
    """Plain decoding and Foredraft in turn, at one number of sessions.

    plain and foredraft are medians of tokens per second over turns; ratio, low, high and identical
    are their comparison. gap_p99 is the 99th percentile of the seconds between two chunks of a
    stream, first_token_p99 that of the seconds to the first one, and costs are those of a token,
    each in plain decoding and in Foredraft.
    """

    pair: str
    sessions: int
    temperature: float
    turns: int
    requests: int
    plain: float
    foredraft: float
    ratio: float
    low: float
    high: float
    identical: float
    plain_gap_p99: float
    gap_p99: float
    plain_first_token_p99: float
    first_token_p99: float
    plain_costs: Costs
    costs: Costs


def point(
    pair: str,
    sessions: int,
    temperature: float,
    plain_turns: Sequence[CountedTurn],
    foredraft_turns: Sequence[CountedTurn],
) -> Point:
    """Return the point of turns that alternated."""
    plain, foredraft = ([each.turn for each in turns] for turns in (plain_turns, foredraft_turns))
    compared = compare(foredraft, plain)
    return Point(
        pair=pair,
        sessions=sessions,
        temperature=temperature,
        turns=len(plain),
        requests=len(plain[0].answers),
        plain=median(turn.speed for turn in plain),
        foredraft=median(turn.speed for turn in foredraft),
        ratio=compared.ratio,
        low=compared.low,
        high=compared.high,
        identical=compared.identical,
        plain_gap_p99=percentile(_gaps(plain), 99),
        gap_p99=percentile(_gaps(foredraft), 99),
        plain_first_token_p99=percentile(_first_tokens(plain), 99),
        first_token_p99=percentile(_first_tokens(foredraft), 99),
        plain_costs=_costs(plain_turns),
        costs=_costs(foredraft_turns),
    )


def _costs(turns: Sequence[CountedTurn]) -> Costs:
    tokens = sum(len(answer.tokens) for each in turns for answer in each.turn.answers)
    outside_s = sum(each.turn.seconds - each.work.seconds for each in turns)
    return Costs(
        sum(each.work.passes for each in turns) / tokens,
        sum(each.work.rows for each in turns) / tokens,
        1e3 * outside_s / tokens,
    )


def summary(point: Point) -> str:
    """Return a point in one line, for those who wait for the others."""
    p = point
    return (
        f"{p.pair}, temperature {p.temperature:g}, sessions {p.sessions}: plain {p.plain:.0f} "
        f"tokens/s, Foredraft {p.foredraft:.0f}, {p.ratio:.2f}x ({p.low:.2f} to {p.high:.2f}), "
        f"{p.identical:.0%} identical"
    )


def as_markdown(points: Sequence[Point]) -> str:
    """Return the points as a Markdown table."""
    head = (
        "| pair | temperature | sessions | plain, tokens/s | Foredraft, tokens/s | against plain "
        "(median, 95 %) | p99 gap, ms: plain, Foredraft | p99 first token, ms: plain, Foredraft "
        "| passes, rows, ms outside passes, a token: plain | Foredraft | identical |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {p.pair} | {p.temperature:g} | {p.sessions} | {p.plain:.0f} | {p.foredraft:.0f} "
        f"| {p.ratio:.2f}x ({p.low:.2f} to {p.high:.2f}) "
        f"| {1e3 * p.plain_gap_p99:.0f}, {1e3 * p.gap_p99:.0f} "
        f"| {1e3 * p.plain_first_token_p99:.0f}, {1e3 * p.first_token_p99:.0f} "
        f"| {_cell(p.plain_costs)} | {_cell(p.costs)} | {p.identical:.0%} |\n"
        for p in points
    )


def _cell(costs: Costs) -> str:
    return f"{costs.passes:.3f}, {costs.rows:.2f}, {costs.outside_ms:.2f}"


def _gaps(turns: Sequence[Turn]) -> list[float]:
    return [gap for turn in turns for answer in turn.answers for gap in answer.gaps_s]


def _first_tokens(turns: Sequence[Turn]) -> list[float]:
    return [answer.first_token_s for turn in turns for answer in turn.answers]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile by nearest rank, 0 of nothing."""
    return sorted(values)[-(-percent * len(values) // 100) - 1] if values else 0.0
