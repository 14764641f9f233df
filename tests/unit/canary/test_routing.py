"""An ingress replica's part: a trial begins, is decided on, and ends with its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from deployments.canary import routing
from deployments.canary.arms import CANARY, STABLE, OneArm
from deployments.canary.routing import Place, Routing
from deployments.observability.metrics import Sample
from deployments.pools import DrafterPool
from tests.support.orchestrator.peers import ScriptedDrafter
from tests.support.waiting import eventually
from tests.unit.canary.test_trial import CONFIG, Memory, report

PLAIN = DrafterPool()
TRIED = PLAIN.model_copy(update={"canary": CONFIG})


class Metrics:
    """Gauges by name."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add(self, samples: Sequence[Sample]) -> None:
        self.values |= {sample.name: sample.value for sample in samples}


async def test_a_trial_from_its_begin_to_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routing, "_INTERVAL_S", 0.01)
    settled: list[str] = []
    failing = [True]

    def settle() -> None:
        if failing:
            failing.clear()
            raise OSError("away for a moment")
        settled.append("once")

    async def runs() -> bool:
        return True

    memory, metrics = Memory(), Metrics()
    place = Place("foredraft", "one", memory, [metrics])
    made = Routing(ScriptedDrafter(), ScriptedDrafter(), runs, settle, place)
    made.follow(PLAIN)
    assert isinstance(made.arms, OneArm)
    made.follow(TRIED)
    arms = made.arms
    made.follow(TRIED)
    assert made.arms is arms
    await eventually(lambda: {arms.choose().name for _ in range(50)} == {STABLE, CANARY})
    for _ in range(100):
        arm = arms.choose()
        arm.ended(report(2 if arm.name == CANARY else 30), 1.0)
    await eventually(lambda: settled == ["once"])
    assert {arms.choose().name for _ in range(50)} == {STABLE}
    assert metrics.values["foredraft_canary_outcome"] == -1.0
    assert b"rolled back" in memory.kept["foredraft:canary:foredraft"]
    assert "the canary is rolled back: accepted tokens per round" in caplog.text
    made.follow(PLAIN)
    assert isinstance(made.arms, OneArm)
    await asyncio.sleep(0)
