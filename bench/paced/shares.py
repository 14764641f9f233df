"""What turns of paced verifiers that share a drafter come to. Pure.

Of S sessions a verifier, T tokens a round, t_v = verify_s(S) and t_d = draft_s(S), a device that
drafts and verifies in turn makes S T / (t_v + t_d) tokens/s. A verifier that another device drafts
for makes S T / t_v at most: 1 + t_d / t_v times as many (arXiv 2606.25091; a diffusion drafter
needs one pass, not one for each token). M verifiers reach that until their drafts, M S in a pass,
take longer than t_v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.load.traffic import Turn
from bench.paced.points import Gauges, Modelled, in_flight, mean_round, total


@dataclass(frozen=True, slots=True)
class SharedPoint:
    """Verifiers that share a drafter, in a turn; tokens/s and ms of the device.

    each are the verifiers' tokens/s. gain is their mean against a device that drafts and verifies
    in turn, bound the most that it can be; in_reach is that bound once drafts for all sessions are
    to fit into one verification. rounds_per_pass are of one verifier, drafts_per_pass of the
    drafter; verifying and drafting are the shares of the time in which passes ran.
    """

    verifiers: int
    sessions: int
    temperature: float
    slowdown: float
    each: tuple[float, ...]
    gain: float
    bound: float
    in_reach: float
    tokens_per_round: float
    rounds_per_pass: float
    drafts_per_pass: float
    verifying: float
    drafting: float
    late: float

    @property
    def fairness(self) -> float:
        """The slowest verifier's tokens/s against the fastest one's."""
        return min(self.each) / max(self.each)


def shared_point(
    sessions: int,
    temperature: float,
    slowdown: float,
    modelled: Modelled,
    turns: Sequence[tuple[Turn, Gauges]],
    drafted: Gauges,
) -> SharedPoint:
    """Return the point of turns that ran at once; drafted is what the drafter counted."""
    verifiers = len(turns)
    verified = total([gauges for _, gauges in turns])
    seconds = max(turn.seconds for turn, _ in turns)
    tokens = sum(len(answer.tokens) for turn, _ in turns for answer in turn.answers)
    # As requests end, fewer than these are under way.
    share = sum(in_flight(turn) for turn, _ in turns) / verifiers

    def passes_s(drafting: int) -> tuple[float, float]:
        return (
            modelled.verifier.pass_s(mean_round(verified, share)),
            modelled.drafter.pass_s(mean_round(drafted, drafting * share)),
        )

    verify_s, draft_s = passes_s(1)
    _, all_s = passes_s(verifiers)
    tokens_per_round = tokens / verified["paced_rounds"]
    each = tuple(slowdown * turn.speed for turn, _ in turns)
    in_turn = share * tokens_per_round / (verify_s + draft_s)
    both = {name: verified[name] + drafted[name] for name in ("late_passes", "paced_passes")}
    return SharedPoint(
        verifiers=verifiers,
        sessions=sessions,
        temperature=temperature,
        slowdown=slowdown,
        each=each,
        gain=sum(each) / verifiers / in_turn,
        bound=1 + draft_s / verify_s,
        in_reach=(verify_s + draft_s) / max(verify_s, all_s),
        tokens_per_round=tokens_per_round,
        rounds_per_pass=verified["paced_rounds"] / verified["paced_passes"],
        drafts_per_pass=drafted["paced_rounds"] / drafted["paced_passes"],
        verifying=verified["modelled_s"] / verifiers / seconds,
        drafting=drafted["modelled_s"] / seconds,
        late=both["late_passes"] / both["paced_passes"],
    )


def summary(point: SharedPoint) -> str:
    """Return a point in one line, for those who wait for the others."""
    p = point
    return (
        f"temperature {p.temperature:g}, {p.verifiers} verifiers of {p.sessions} sessions: "
        f"{sum(p.each):.0f} tokens/s, gain {p.gain:.2f}x of {p.in_reach:.2f}x"
    )


def as_markdown(points: Sequence[SharedPoint]) -> str:
    """Return the points as a Markdown table."""
    head = (
        "| temperature | verifiers x sessions | tokens/s each, all | slowest of fastest "
        "| gain | bound: 1 + t_d / t_v, with one drafter | tokens a round "
        "| a pass: rounds, drafts | busy: verifiers, drafter | late passes |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {p.temperature:g} | {p.verifiers} x {p.sessions} "
        f"| {sum(p.each) / p.verifiers:.0f}, {sum(p.each):.0f} | {p.fairness:.2f} "
        f"| {p.gain:.2f}x | {p.bound:.2f}x, {p.in_reach:.2f}x | {p.tokens_per_round:.2f} "
        f"| {p.rounds_per_pass:.1f}, {p.drafts_per_pass:.1f} "
        f"| {p.verifying:.0%}, {p.drafting:.0%} | {p.late:.1%} |\n"
        for p in points
    )
