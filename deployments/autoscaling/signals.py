"""What a policy sees: both pools at one moment."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S")


class PoolName(StrEnum):
    """A deployment that is scaled."""

    DRAFTER = "drafter"
    VERIFIER = "verifier"


class DrafterSignal(NamedTuple):
    """One drafter.

    busy is a share of 0 to 1, drafts_s drafts per second, draft_s the busy time that one takes, 0
    where it is not known, wait_s their mean wait.
    """

    busy: float
    drafts_s: float
    draft_s: float = 0.0
    wait_s: float = 0.0


class VerifierSignal(NamedTuple):
    """One verifier.

    busy is a share of 0 to 1, and so is kv, but that is above 1 where a session waits for some.
    waiting counts rounds, rounds_s and kept_s are rounds and accepted draft tokens per second,
    pass_s is the mean time of a pass, 0 where it is not known.
    """

    busy: float
    kv: float
    sessions: float
    waiting: float
    rounds_s: float
    kept_s: float
    pass_s: float = 0.0


class Pool(NamedTuple, Generic[S]):
    """The replicas that have signals, how many there are to be, and the bounds of that.

    young ones are still starting, or have not carried their share of the load for long enough: a
    pool is scaled once it has none. The others without signals are taken to be like those with.
    """

    replicas: tuple[S, ...]
    target: int
    least: int
    most: int
    young: int = 0

    @property
    def settled(self) -> bool:
        """Whether the signals tell what the pool needs."""
        return bool(self.replicas) and not self.young

    @property
    def each(self) -> float:
        """How many replicas one with signals stands for."""
        return self.target / len(self.replicas)

    def bounded(self, need: float) -> int:
        """Return the least number of replicas within the bounds that covers a need."""
        # What is one replica but for rounding is one replica.
        return max(self.least, min(self.most, math.ceil(need - 1e-9)))


class Signals(NamedTuple):
    """Both pools; now is in seconds of any one clock."""

    now: float
    drafters: Pool[DrafterSignal]
    verifiers: Pool[VerifierSignal]
