"""Scenarios whose times can be told in one's head: a pass is 10 ms, everything else takes none."""

from __future__ import annotations

from typing import Any

from foredraft.strict import parse
from foredraft_simulator.scenario.scenario import Scenario

PASS_S = 0.01
# So fast that nothing but the overhead counts.
_DEVICE = {"weight_bytes": 1, "flops_per_token": 1, "kv_bytes_per_token": 0}
_SPEED = {"bandwidth": 1e30, "peak_flops": 1e30}


def pace(seconds: float) -> dict[str, Any]:
    """Return a device whose passes all take so long."""
    return {**_DEVICE, **_SPEED, "overhead_s": seconds}


def scenario(**changes: Any) -> Scenario:
    """Return a scenario of one verifier and one drafter; changes go into its parts."""
    values: dict[str, Any] = {
        "orchestrator": {
            "adl": {"name": "fixed", "k": 4},
            "stream_interval_ms": 0,
            "run_ahead_min_hit_rate": 1.0,
        },
        "serve": {"choose_s": 0},
        "drafter": {"pace": pace(0), "link": {"delay_ms": 0}, "cold_start_s": 1},
        "verifier": {"pace": pace(PASS_S), "link": {"delay_ms": 0}, "cold_start_s": 1},
    }
    for name, part in changes.items():
        old = values.get(name)
        values[name] = {**old, **part} if isinstance(old, dict) else part
    return parse(Scenario, values)
