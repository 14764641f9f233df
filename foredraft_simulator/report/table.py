"""An outcome as values and as text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from foredraft_simulator.outcome import Outcome, percentile


def summary(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome's figures: times in ms, replicas as means over the simulation."""
    waste = outcome.waste
    lasted = max((pool.until_s for pool in outcome.pools.values()), default=0.0)
    return {
        "requests": len(outcome.requests),
        "failed": outcome.errors,
        "tokens": outcome.tokens,
        "seconds": outcome.seconds,
        "tokens_per_s": outcome.throughput,
        "ttft_ms": _times(outcome.ttfts_s),
        "tpot_ms": _times(outcome.tpots_s),
        "tokens_per_round": outcome.tokens / max(1, sum(each.rounds for each in outcome.requests)),
        "pools": {
            name: {
                "mean_replicas": pool.replica_seconds / lasted if lasted else 0.0,
                "most_replicas": max(size.paid for size in pool.sizes),
                "replica_seconds": pool.replica_seconds,
                "cost": pool.cost,
            }
            for name, pool in outcome.pools.items()
        },
        "cost": outcome.cost,
        "cost_per_1000_tokens": 1000 * outcome.cost / outcome.tokens if outcome.tokens else None,
        "draft_tokens": {
            "drafted": waste.drafted,
            "never_verified": waste.never_verified,
            "rejected": waste.rejected,
            "accepted": waste.accepted,
        },
        "decisions": [{"at_s": each.time_s, "line": each.line} for each in outcome.decisions],
        "events": outcome.events,
        "wall_s": outcome.wall_s,
        "events_per_s": outcome.events / outcome.wall_s if outcome.wall_s else None,
    }


def as_text(outcome: Outcome) -> str:
    """Return the figures as lines for a terminal."""
    found = summary(outcome)
    lines = [
        f"{found['requests']} requests in {found['seconds']:.1f} s, {found['failed']} failed",
        f"{found['tokens_per_s']:.0f} tokens/s, {found['tokens_per_round']:.2f} tokens a round",
    ]
    for name, title in (("ttft_ms", "time to first token"), ("tpot_ms", "time per token")):
        times = found[name]
        if times is not None:
            lines.append(
                f"{title}: mean {times['mean']:.2f} ms, p50 {times['p50']:.2f}, "
                f"p99 {times['p99']:.2f}"
            )
    for name, pool in found["pools"].items():
        lines.append(
            f"{name}s: {pool['mean_replicas']:.2f} on average, {pool['most_replicas']} at most, "
            f"cost {pool['cost']:.1f}"
        )
    drafts = found["draft_tokens"]
    if drafts["drafted"]:
        lines.append(
            f"of {drafts['drafted']} draft tokens {drafts['accepted']} accepted, "
            f"{drafts['rejected']} rejected, {drafts['never_verified']} never verified"
        )
    lines += [f"{each['at_s']:8.1f} s  {each['line']}" for each in found["decisions"]]
    lines.append(
        f"simulated in {found['wall_s']:.1f} s: {found['events']} events, "
        f"{found['events_per_s']:.0f} a second"
    )
    return "\n".join(lines)


def _times(seconds: Sequence[float]) -> dict[str, float] | None:
    """Return mean and percentiles in milliseconds, None of nothing."""
    if not seconds:
        return None
    found = {f"p{percent}": 1e3 * percentile(seconds, percent) for percent in (50, 90, 99)}
    return {"mean": 1e3 * fmean(seconds), **found}
