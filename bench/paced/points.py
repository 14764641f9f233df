"""What paced turns come to: how near a cluster is to what its modelled devices allow. Pure.

With N sessions in flight on average, a session's round of r rows after c tokens, and T tokens a
round, all of them means over the turn, the ideal is that every round of all sessions shares one
pass and that drafting and verifying overlap in full:

    ideal tokens/s = N T / max(verify_s(N r, N c, N), draft_s(N r_d, N c_d, N))

What prefill adds to passes is added to the ideal's time. Plain decoding is the case r = 1, T = 1
without drafts. Seconds are those of this machine's clock; device seconds are these over the
slowdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    of_ideal and plain_of_ideal are the shares of the module's ideal. in_flight is N,
    rounds_per_pass how many of these sessions share one of the verifier's passes. verify_ms and
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
    plain_of_ideal: float
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
        of_ideal=median(share_of_ideal(each, modelled, slowdown) for each in foredraft),
        plain_of_ideal=median(share_of_ideal(each, modelled, slowdown) for each in plain),
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


def share_of_ideal(found: PacedTurn, modelled: Modelled, slowdown: float) -> float:
    """Return the ideal's seconds for a turn over those that it took."""
    sessions = in_flight(found.turn)
    rounds = found.verifier["paced_rounds"]
    pass_s = max(
        modelled.verifier.pass_s(_round(found.verifier, sessions)),
        modelled.drafter.pass_s(_round(found.drafter, sessions))
        if found.drafter["paced_rounds"]
        else 0.0,
    )
    ideal_s = slowdown * pass_s * rounds / sessions + found.verifier["prefill_s"]
    return ideal_s / found.turn.seconds


def in_flight(turn: Turn) -> float:
    """Return how many requests of a turn were under way on average."""
    return sum(answer.chunks[-1] - answer.sent for answer in turn.answers) / turn.seconds


def total(gauges: Sequence[Gauges]) -> dict[str, float]:
    """Return sums by name."""
    return {name: sum(each[name] for each in gauges) for name in gauges[0]}


def _round(gauges: Gauges, sessions: float) -> Work:
    """Return a pass that all sessions share, with a mean round of each."""
    rounds = gauges["paced_rounds"]
    rows, context = gauges["round_rows"], gauges["round_context"]
    return Work(sessions * rows / rounds, sessions * context / rounds, sessions)


def _mean(whole: float, count: float) -> float:
    return whole / count if count else 0.0


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
        "| of the ideal (plain) | tokens, rows a round "
        "| in flight, rounds a pass | passes, ms: verify, draft | busy: verifier, drafter "
        "| late passes, overrun | CPU | identical |\n" + "|---" * 18 + "|\n"
    )
    return head + "".join(
        f"| {p.model} | {p.temperature:g} | {p.sessions} | {p.slowdown:g} | {p.link_ms:g} "
        f"| {'on' if p.run_ahead else 'off'} | {p.plain:.0f} | {p.foredraft:.0f} "
        f"| {_closed_form(p)} | {p.ratio:.2f}x "
        f"| {p.of_ideal:.2f} ({p.plain_of_ideal:.2f}) "
        f"| {p.tokens_per_round:.2f}, {p.rows_per_round:.1f} "
        f"| {p.in_flight:.1f}, {p.rounds_per_pass:.1f} "
        f"| {p.verify_ms:.2f}, {p.draft_ms:.2f} | {p.verifying:.0%}, {p.drafting:.0%} "
        f"| {p.late:.1%}, {p.overrun:.1%} | {p.cpu:.0%} | {p.identical:.0%} |\n"
        for p in points
    )
