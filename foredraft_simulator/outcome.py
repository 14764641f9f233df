"""What a simulation comes to: each request, the pools over time, and sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foredraft_simulator.cluster.autoscaler import Decided
from foredraft_simulator.cluster.pool import PoolSize


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """One request; times in seconds of the simulation.

    first_s is when its first tokens reached the client, last_s when its last ones did, None if it
    failed before. error is why it failed, "" if it did not. offered, bought and accepted are the
    draft tokens that went to a verifier, that it verified, and that the target accepted.
    """

    number: int
    arrived_s: float
    prompt_tokens: int
    tokens: int
    first_s: float | None
    last_s: float | None
    error: str
    rounds: int
    offered: int
    bought: int
    accepted: int
    verifier_moves: int
    drafter_attaches: int

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token, None without one."""
        return None if self.first_s is None else self.first_s - self.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """Time per token after the first tokens, None for fewer than two tokens."""
        if self.first_s is None or self.last_s is None or self.tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.tokens - 1)


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """One pool up to the simulation's end: its sizes over time, what its replicas lasted in all,
    from the decision to start each, and what that costs.
    """

    sizes: tuple[PoolSize, ...]
    until_s: float
    replica_seconds: float
    cost: float


@dataclass(frozen=True, slots=True)
class Waste:
    """Draft tokens: made, offered to verifiers, verified and accepted."""

    drafted: int
    offered: int
    bought: int
    accepted: int

    @property
    def never_verified(self) -> int:
        """Draft tokens that no verifier looked at."""
        return self.drafted - self.bought

    @property
    def rejected(self) -> int:
        """Draft tokens that were verified in vain."""
        return self.bought - self.accepted


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulation.

    seconds is its time from the first arrival to the last request's end, wall_s what it took to
    compute; events are messages, forward passes, arrivals and steps of the policy.
    """

    requests: tuple[RequestOutcome, ...]
    pools: Mapping[str, PoolOutcome]
    decisions: tuple[Decided, ...]
    waste: Waste
    seconds: float
    events: int
    wall_s: float

    @property
    def tokens(self) -> int:
        """Tokens of all requests."""
        return sum(each.tokens for each in self.requests)

    @property
    def throughput(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def errors(self) -> int:
        """How many requests failed."""
        return sum(bool(each.error) for each in self.requests)

    @property
    def cost(self) -> float:
        """What all replicas cost."""
        return sum(pool.cost for pool in self.pools.values())

    @property
    def ttfts_s(self) -> list[float]:
        """Times to the first token, of the requests that had one."""
        return [each.ttft_s for each in self.requests if each.ttft_s is not None]

    @property
    def tpots_s(self) -> list[float]:
        """Times per token, of the requests with two or more."""
        return [each.tpot_s for each in self.requests if each.tpot_s is not None]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the least value that so many percent of the values do not exceed, NaN of none."""
    if not values:
        return math.nan
    place = max(0, math.ceil(percent / 100 * len(values)) - 1)
    return sorted(values)[place]
