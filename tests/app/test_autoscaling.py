"""Both pools follow a load that rises and falls on a real cluster: with reasons, the same texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.ramp.arrivals import Phase
from bench.ramp.run import RampPlan, measure
from deployments.autoscaling.signals import PoolName
from deployments.config import RAMP_FILE, ServeFile, read
from foredraft_cli.cluster.status import of_connected
from tests.support.cluster import free_port

# Shorter than the command's: until the pools have followed, no longer.
PLAN = RampPlan(phases=(Phase(0.6, 5), Phase(2.4, 24), Phase(0.5, 4)))


def configuration(folder: Path) -> ServeFile:
    values = yaml.safe_load(RAMP_FILE.read_text())
    [entry] = values["applications"]
    entry["args"]["ingress"]["direct"]["port"] = free_port()
    entry["autoscaling_policy"]["policy_kwargs"]["drafter_steps"]["down_hold_s"] = 5
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(values))
    return read(file)


@pytest.mark.slow
async def test_the_pools_follow_the_load(tmp_path: Path) -> None:
    shown: list[dict[str, Any]] = []

    def say(_: str) -> None:
        shown.extend(of_connected())

    ramp = await measure(configuration(tmp_path), PLAN, say)
    drafters, verifiers = (ramp.numbers(pool) for pool in (PoolName.DRAFTER, PoolName.VERIFIER))
    # How far up, and whether twice, depends on the machine; `foredraft bench ramp` shows it.
    assert (drafters[0], drafters[-1]) == (0, 0) and max(drafters) >= 1, drafters
    assert (verifiers[0], verifiers[-1]) == (1, 1) and max(verifiers) == 2, verifiers
    assert [answer.error for answer in ramp.answers if answer.error] == []
    assert ramp.identical == len(ramp.answers) > 60
    reasons = {(one.pool, one.before, one.target): one.reason for one in ramp.changes}
    assert "a draft has" in reasons["drafter", 0, 1]
    assert 2 not in drafters or "number 2 adds" in reasons["drafter", 1, 2]
    # The last drafter goes as the load ends, or before it, where drafts are worth too little.
    last = [one.reason for one in ramp.changes if one.pool == PoolName.DRAFTER and not one.target][
        -1
    ]
    assert "no rounds" in last or "has to add" in last, last
    assert " needs " in reasons["verifier", 1, 2]
    # What `foredraft status` has at the load's end.
    [status] = [each for each in shown if each["application"] == "ramp"]
    assert status["status"] == "RUNNING"
    assert {"ingress", "drafter", "verifier"} <= set(status["pools"])
    assert status["decisions"]["verifier"]["reason"]
    assert {change["pool"] for change in status["changes"]} == {"drafter", "verifier"}
