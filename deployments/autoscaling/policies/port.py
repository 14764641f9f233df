"""What every policy is: a pure step from a state and signals to wishes with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeVar

from deployments.autoscaling.signals import PoolName, Signals

State = TypeVar("State")


class Wish(NamedTuple):
    """How many replicas a pool should have, and why."""

    replicas: int
    reason: str


# A pool that is missing stays as it is.
Wishes = Mapping[PoolName, Wish]


class Policy(Protocol[State]):
    """Decides how many replicas there should be; without clock and I/O."""

    @property
    def initial(self) -> State:
        """The state before the first step."""

    def step(self, state: State, signals: Signals) -> tuple[State, Wishes]:
        """Return the next state, and the wishes that the signals lead to."""
