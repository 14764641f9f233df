"""What was found for each policy, as rows and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foredraft_simulator.tune.figures import Limits
from foredraft_simulator.tune.run import Tuned

COLUMNS = (
    "policy",
    "cost",
    "verifiers",
    "drafters",
    "TTFT ms",
    "TPOT ms",
    "changes/h",
    "tokens/s",
    "limits",
)


def rows(found: Sequence[Tuned], limits: Limits) -> list[list[str]]:
    """Return a row a policy, by COLUMNS: cost in hours of a verifier, latencies at the percentile.

    The cheapest that keeps the limits is first.
    """
    return [
        [
            each.policy,
            f"{each.best.figures.cost:.4f}",
            f"{each.best.figures.verifiers:.2f}",
            f"{each.best.figures.drafters:.2f}",
            f"{1e3 * each.best.figures.ttft_s:.0f}",
            f"{1e3 * each.best.figures.tpot_s:.1f}",
            f"{each.best.figures.decisions_h:.0f}",
            f"{each.best.figures.tokens_s:.0f}",
            _kept(each, limits),
        ]
        for each in found
    ]


def _kept(found: Tuned, limits: Limits) -> str:
    failed, excess = found.best.figures.failed, found.best.figures.excess(limits)
    if failed:
        return f"{failed} requests failed"
    return f"{100 * excess:.0f} % above" if excess else "kept"


def as_json(found: Sequence[Tuned], limits: Limits) -> dict[str, Any]:
    """Return everything that was found as plain values."""
    return {
        "limits": limits.model_dump(),
        "policies": [
            {
                "policy": each.policy,
                "parameters": dict(each.trials[0].values),
                "figures": each.best.figures._asdict(),
                "verifiers": [list(point) for point in each.best.verifiers],
                "drafters": [list(point) for point in each.best.drafters],
                "changes": [change._asdict() for change in each.best.changes],
                "trials": [
                    {"values": dict(trial.values), "figures": trial.figures._asdict()}
                    for trial in each.trials
                ],
            }
            for each in found
        ],
    }
