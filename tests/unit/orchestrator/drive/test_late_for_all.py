"""A drafter that is late for every session: a few find out, the others decode plainly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from foredraft.messages import DraftBlock, Propose
from orchestrator.config import BreakerConfig, OrchestratorConfig
from orchestrator.controller_state import ControllerState
from orchestrator.drive.health import DrafterHealth
from orchestrator.drive.pipeline import generate
from tests.support.orchestrator.peers import (
    Collected,
    ScriptedDrafter,
    ScriptedVerifier,
    plain,
    request,
    true_block,
)
from tests.support.orchestrator.running import FIXED

CONFIG = BreakerConfig(threshold=2, cooldown_s=1.0, max_cooldown_s=4.0)


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def one(
    drafter: ScriptedDrafter, settings: OrchestratorConfig, state: ControllerState
) -> Collected:
    got, verifier, asked = Collected(), ScriptedVerifier(), request(40)
    async for event in generate(asked, drafter, verifier, settings, state=state):
        got.add(event)
    assert got.tokens == plain(asked.prompt, asked.max_new_tokens)
    return got


def settings(**breaker: float) -> OrchestratorConfig:
    return FIXED.model_copy(
        update={"draft_deadline_ms": 50.0, "breaker": BreakerConfig.model_validate(breaker)}
    )


async def test_new_sessions_do_not_wait_for_what_others_waited_for() -> None:
    async def never(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        await asyncio.Event().wait()
        return true_block(ask, prefix)

    drafter, state = ScriptedDrafter(never), ControllerState()
    patient = settings(threshold=3, cooldown_s=60, max_cooldown_s=60)
    waited = []
    for _ in range(12):
        got = await one(drafter, patient, state)
        assert got.summary is not None
        waited.append(got.summary.report.drafting_s)
    # The first sessions wait once each, their first draft stays late; then nobody asks.
    assert len(drafter.opens) == 3
    assert all(seconds > 0.04 for seconds in waited[:3])
    assert all(seconds < 0.04 for seconds in waited[3:])
    rounds = len(got.steps)
    assert rounds < 8, "plain rounds are as long as without drafters"


async def test_a_drafter_in_time_again_is_asked_again() -> None:
    late = True

    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        if late:
            await asyncio.Event().wait()
        return true_block(ask, prefix)

    drafter, state = ScriptedDrafter(script), ControllerState()
    hasty = settings(threshold=1, cooldown_s=0.01, max_cooldown_s=0.01)
    assert (await one(drafter, hasty, state)).summary is not None
    late = False
    await asyncio.sleep(0.02)
    got = await one(drafter, hasty, state)
    assert got.summary is not None and got.summary.report.num_accepted > 20


async def test_one_session_tries_and_the_others_follow() -> None:
    clock, state = Clock(), ControllerState()
    seen = [DrafterHealth(CONFIG, state, clock) for _ in range(4)]
    assert not seen[0].missed() and not seen[1].paused
    seen[1].missed()
    assert all(health.paused for health in seen) and not any(h.failing for h in seen[2:])
    clock.now += 1.0
    # The pause is over for all, and the first to come begins another one for the rest.
    assert not seen[2].paused
    await asyncio.wait_for(seen[2].until_open(), 1)
    assert seen[3].paused and seen[2].paused
    seen[2].succeeded()
    assert not seen[3].paused


@pytest.mark.parametrize("misses", [1, 3])
async def test_pauses_double_while_tries_fail(misses: int) -> None:
    clock, state = Clock(), ControllerState()
    for _ in range(2):
        DrafterHealth(CONFIG, state, clock).missed()
    pause_s = 1.0
    for _ in range(misses):
        clock.now += pause_s
        trying = DrafterHealth(CONFIG, state, clock)
        await trying.until_open()
        trying.missed()
        pause_s = min(2 * pause_s, 4.0)
    clock.now += pause_s - 0.01
    assert DrafterHealth(CONFIG, state, clock).paused
    clock.now += 0.01
    assert not DrafterHealth(CONFIG, state, clock).paused


def test_a_lost_drafter_is_one_sessions_matter() -> None:
    clock, state = Clock(), ControllerState()
    for _ in range(5):
        DrafterHealth(CONFIG, state, clock).lost()
    assert not DrafterHealth(CONFIG, state, clock).paused
