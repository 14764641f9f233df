"""What paced turns come to: how near a cluster is to what its modelled devices allow. Pure.

With n sessions in flight at a moment, a session's round of r rows after c tokens, and T tokens a
round, the latter three means over the turn, the ideal is that every round of all sessions shares
one pass and that drafting and verifying overlap in full:

    ideal tokens/s = n T / max(verify_s(n r, n c, n), draft_s(n r_d, n c_d, n))

A turn's ideal is the mean over its time, as n falls towards its end. Where no draft is made before
its prefix is committed, drafting and verifying take turns: in_turn is the same with the sum in
place of the maximum, and only drafts ahead are better; where many rounds are plain, it has no
meaning. What prefill adds to passes is added to the time of both. Plain decoding is the case r = 1,
T = 1 without drafts. Seconds are those of this machine's clock; device seconds are these over the
slowdown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from bench.load.traffic import Turn
from foredraft.pacing.config import PaceConfig, Work

Gauges = Mapping[str, float]


class PacedTurn(NamedTuple):
    """A turn, what both services' gauges rose by in it, and the machine's share of busy CPU."""

    turn: Turn
    verifier: Gauges
    drafter: Gauges
    cpu: float


class Modelled(NamedTuple):
    """What the services' passes take; a drafter's may be another device."""

    verifier: PaceConfig
    drafter: PaceConfig


@dataclass(frozen=True, slots=True)
class PacedPoint:
    """Plain decoding and Foredraft in turn, paced; medians over turns, tokens/s of the device.

    of_ideal, in_turn and plain_of_ideal are the shares of the module's ideals. in_flight is the
    mean of n, rounds_per_pass how many of these sessions share one of the verifier's passes,
    prefill the share of the time that prompts added to passes. verify_ms and
    draft_ms are the mean modelled passes of Foredraft's turns, in ms of the device; verifying and
    drafting the shares of the time in which they ran. late is the share of both services' passes
    whose own work took longer than was modelled, overrun what passes took longer, for each second
    modelled. cpu is the busy share of this machine's cores. link_ms is the delay each way to the
    drafter, in ms of the device.
    """

    model: str
    sessions: int
    temperature: float
    slowdown: float
    link_ms: float
    run_ahead: bool
    turns: int
    requests: int
    plain: float
    foredraft: float
    ratio: float
    of_ideal: float
    in_turn: float
    plain_of_ideal: float
    prefill: float
    tokens_per_round: float
    rows_per_round: float
    in_flight: float
    rounds_per_pass: float
    verify_ms: float
    draft_ms: float
    verifying: float
    drafting: float
    late: float
    overrun: float
    cpu: float
    identical: float

    @property
    def closed_form(self) -> tuple[float, float]:
        """Tokens/s of one session if each round takes drafting, verifying and the link both ways in
        turn; and if the draft is always made, and sent, while the round before is verified
        (arXiv 2606.25091).
        """
        away_ms = self.draft_ms + 2 * self.link_ms
        tokens = 1e3 * self.tokens_per_round
        return tokens / (self.verify_ms + away_ms), tokens / max(self.verify_ms, away_ms)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a point was measured at."""

    model: str
    sessions: int
    temperature: float
    slowdown: float
    link_ms: float = 0.0
    run_ahead: bool = True


def paced_point(
    setting: Setting,
    modelled: Modelled,
    plain: Sequence[PacedTurn],
    foredraft: Sequence[PacedTurn],
) -> PacedPoint:
    """Return the point of turns that alternated."""
    slowdown = setting.slowdown
    same = [
        a.tokens == b.tokens
        for one, other in zip(plain, foredraft, strict=True)
        for a, b in zip(one.turn.answers, other.turn.answers, strict=True)
    ]
    verifier = total([each.verifier for each in foredraft])
    drafter = total([each.drafter for each in foredraft])
    both = total([gauges for each in (*plain, *foredraft) for gauges in each[1:3]])
    seconds = sum(each.turn.seconds for each in foredraft)
    tokens = sum(len(answer.tokens) for each in foredraft for answer in each.turn.answers)
    speeds = [median(slowdown * each.turn.speed for each in way) for way in (plain, foredraft)]
    return PacedPoint(
        model=setting.model,
        sessions=setting.sessions,
        temperature=setting.temperature,
        slowdown=slowdown,
        link_ms=setting.link_ms,
        run_ahead=setting.run_ahead,
        turns=len(plain),
        requests=len(plain[0].turn.answers),
        plain=speeds[0],
        foredraft=speeds[1],
        ratio=median(b.turn.speed / a.turn.speed for a, b in zip(plain, foredraft, strict=True)),
        of_ideal=median(share_of_ideal(each, modelled, slowdown, max) for each in foredraft),
        in_turn=median(share_of_ideal(each, modelled, slowdown, sum) for each in foredraft),
        plain_of_ideal=median(share_of_ideal(each, modelled, slowdown, max) for each in plain),
        prefill=verifier["prefill_s"] / seconds,
        tokens_per_round=_mean(tokens, verifier["paced_rounds"]),
        rows_per_round=_mean(verifier["round_rows"], verifier["paced_rounds"]),
        in_flight=median(in_flight(each.turn) for each in foredraft),
        rounds_per_pass=_mean(verifier["paced_rounds"], verifier["paced_passes"]),
        verify_ms=1e3 * _mean(verifier["modelled_s"], verifier["paced_passes"]) / slowdown,
        draft_ms=1e3 * _mean(drafter["modelled_s"], drafter["paced_passes"]) / slowdown,
        verifying=verifier["modelled_s"] / seconds,
        drafting=drafter["modelled_s"] / seconds,
        late=_mean(both["late_passes"], both["paced_passes"]),
        overrun=_mean(both["overrun_s"], both["modelled_s"]),
        cpu=median(each.cpu for each in (*plain, *foredraft)),
        identical=sum(same) / len(same),
    )


def share_of_ideal(
    found: PacedTurn,
    modelled: Modelled,
    slowdown: float,
    together: Callable[[tuple[float, float]], float],
) -> float:
    """Return an ideal's seconds for a turn over those that it took.

    together gives a round's seconds from those of verifying and drafting: max, or sum.
    """
    # Rounds of all sessions that the ideal decides.
    rounds = sum(
        seconds * sessions / (slowdown * together(_passes_s(found, modelled, sessions)))
        for sessions, seconds in sessions_over(found.turn).items()
        if sessions
    )
    share = found.verifier["paced_rounds"] / rounds
    return share + found.verifier["prefill_s"] / found.turn.seconds


def _passes_s(found: PacedTurn, modelled: Modelled, sessions: int) -> tuple[float, float]:
    """Return the device's seconds of a verifying and a drafting pass that all sessions share."""
    verify_s = modelled.verifier.pass_s(mean_round(found.verifier, sessions))
    if not found.drafter["paced_rounds"]:
        return verify_s, 0.0
    return verify_s, modelled.drafter.pass_s(mean_round(found.drafter, sessions))


def sessions_over(turn: Turn) -> dict[int, float]:
    """Return for how many seconds each number of requests was under way."""
    changes = sorted(
        change for answer in turn.answers for change in ((answer.sent, 1), (answer.chunks[-1], -1))
    )
    seconds: dict[int, float] = defaultdict(float)
    sessions = 0
    for (at, change), (until, _) in pairwise(changes):
        sessions += change
        seconds[sessions] += until - at
    return seconds


def in_flight(turn: Turn) -> float:
    """Return how many requests of a turn were under way on average."""
    return sum(answer.chunks[-1] - answer.sent for answer in turn.answers) / turn.seconds


def total(gauges: Sequence[Gauges]) -> dict[str, float]:
    """Return sums by name."""
    return {name: sum(each[name] for each in gauges) for name in gauges[0]}


def mean_round(gauges: Gauges, sessions: float) -> Work:
    """Return a pass that all sessions share, with a mean round of each."""
    rounds = gauges["paced_rounds"]
    rows, context = gauges["round_rows"], gauges["round_context"]
    return Work(sessions * rows / rounds, sessions * context / rounds, sessions)


def _mean(whole: float, count: float) -> float:
    return whole / count if count else 0.0


def summary(point: PacedPoint) -> str:
    """Return a point in one line, for those who wait for the others."""
    p = point
    ahead = "on" if p.run_ahead else "off"
    return (
        f"{p.model}, temperature {p.temperature:g}, sessions {p.sessions}, link {p.link_ms:g} ms, "
        f"run-ahead {ahead}: plain {p.plain:.0f} tokens/s, Foredraft {p.foredraft:.0f}, "
        f"{p.ratio:.2f}x, {p.of_ideal:.2f} of the ideal, {p.identical:.0%} identical"
    )


def _closed_form(point: PacedPoint) -> str:
    """Return the closed form, which is of one session."""
    if point.sessions > 1:
        return "-"
    return ", ".join(f"{each:.0f}" for each in point.closed_form)


def as_markdown(points: Sequence[PacedPoint]) -> str:
    """Return the points as a Markdown table, with what it does not measure."""
    head = (
        "Modelled devices: these measure Foredraft, not a GPU. Times and tokens/s are of the "
        "device; every second of it took `slowdown` seconds here.\n\n"
        "| model | temperature | sessions | slowdown | link, ms | run-ahead | plain, tokens/s "
        "| Foredraft, tokens/s | closed form: in turn, overlapped | against plain "
        "| of the ideal: overlapped, in turn (plain) | tokens, rows a round "
        "| in flight, rounds a pass | passes, ms: verify, draft "
        "| busy: verifier, drafter; prefill "
        "| late passes, overrun | CPU | identical |\n" + "|---" * 18 + "|\n"
    )
    return head + "".join(
        f"| {p.model} | {p.temperature:g} | {p.sessions} | {p.slowdown:g} | {p.link_ms:g} "
        f"| {'on' if p.run_ahead else 'off'} | {p.plain:.0f} | {p.foredraft:.0f} "
        f"| {_closed_form(p)} | {p.ratio:.2f}x "
        f"| {p.of_ideal:.2f}, {p.in_turn:.2f} ({p.plain_of_ideal:.2f}) "
        f"| {p.tokens_per_round:.2f}, {p.rows_per_round:.1f} "
        f"| {p.in_flight:.1f}, {p.rounds_per_pass:.1f} "
        f"| {p.verify_ms:.2f}, {p.draft_ms:.2f} "
        f"| {p.verifying:.0%}, {p.drafting:.0%}; {p.prefill:.0%} "
        f"| {p.late:.1%}, {p.overrun:.1%} | {p.cpu:.0%} | {p.identical:.0%} |\n"
        for p in points
    )
