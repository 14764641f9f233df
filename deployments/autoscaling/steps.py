"""From wishes to targets: bounded steps, held against what lasts only a moment. Pure."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from deployments.autoscaling.policies.port import Wish
from foredraft.strict import StrictModel


class StepConfig(StrictModel):
    """How fast a pool follows what is wished for it."""

    up_hold_s: float = Field(
        default=5.0, ge=0, description="Time that more must have been wished for, in seconds."
    )
    down_hold_s: float = Field(
        default=60.0, ge=0, description="Time that fewer must have been wished for, in seconds."
    )
    max_step: int = Field(default=4, ge=1, description="Most replicas added or taken at once.")


class Wished(NamedTuple):
    """The wishes of a pool, as far back as they are held, oldest first: (time, replicas)."""

    wishes: tuple[tuple[float, int], ...] = ()
    since: float | None = None


class Decision(NamedTuple):
    """How many replicas a pool gets, how many it was to have, and why."""

    target: int
    before: int
    wish: int
    reason: str


def stepped(
    state: Wished, now: float, target: int, wish: Wish, config: StepConfig
) -> tuple[Wished, Decision]:
    """Return the next state and the decision.

    A pool grows to the least, and shrinks to the most that was wished for during the hold.
    """
    since = now if state.since is None else state.since
    horizon = now - max(config.up_hold_s, config.down_hold_s)
    kept = (*(each for each in state.wishes if each[0] >= horizon), (now, wish.replicas))
    up = min(replicas for at, replicas in kept if at >= now - config.up_hold_s)
    down = max(replicas for at, replicas in kept if at >= now - config.down_hold_s)
    held = now - since
    wanted = target
    if up > target and held >= config.up_hold_s:
        wanted = min(up, target + config.max_step)
    elif down < target and held >= config.down_hold_s:
        wanted = max(down, target - config.max_step)
    return Wished(kept, since), Decision(wanted, target, wish.replicas, wish.reason)
