"""Adaptive draft length: how many tokens to draft next. Pure: state in, state out, no clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Observation:
    """What one draft block came to, in tokens.

    requested_k is k_t, generated_len the drafter's L_gen, accepted L_acc: the block's tokens that
    turned out to be the target's. predicted says whether the round's outcome was a predicted one,
    None where none is predicted. places are where in the block the accepted tokens stood: of a path
    the first ones, of a tree one branch's.
    """

    requested_k: int
    generated_len: int
    accepted: int
    predicted: bool | None = None
    places: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round took: draft tokens requested (0: plain), tokens committed, seconds."""

    requested_k: int
    tokens: int
    seconds: float


class DraftLengthController(Protocol[S]):
    """Picks draft lengths; its state belongs to one session and one drafter."""

    @property
    def max_k(self) -> int:
        """The largest k that next_k can return."""

    @property
    def learns(self) -> bool:
        """Whether a session may start from what another one of its kind ended with."""

    def initial(self) -> S:
        """Return the state before the first block."""

    def update(self, state: S, observation: Observation) -> S:
        """Return the state after one more block."""

    def spent(self, state: S, cost: Cost) -> S:
        """Return the state after one more round, drafted for or plain."""

    def next_k(self, state: S) -> int:
        """Return the number of tokens to draft next; 0 means plain decoding."""

    def explain(self, state: S) -> str:
        """Return in a few words why next_k is what it is."""


@dataclass(frozen=True, slots=True)
class DiffuSpecState:
    """The two moving averages of Eq. 9, and k_{t+1} of Eq. 10."""

    generated: float
    accepted: float
    k: int


@dataclass(frozen=True, slots=True)
class DiffuSpecController:
    """DiffuSpec's controller (Sec. 4.3, Eq. 8-10), k_1 = k_max, averages from 0."""

    k_min: int
    k_max: int
    rho: float
    delta: float

    learns: ClassVar[bool] = False

    @property
    def max_k(self) -> int:
        return self.k_max

    def initial(self) -> DiffuSpecState:
        return DiffuSpecState(0.0, 0.0, self.k_max)

    def update(self, state: DiffuSpecState, observation: Observation) -> DiffuSpecState:
        # Eq. 8 caps L_gen at k_t; once more here, to keep a drafter's nonsense out of the averages.
        gen = min(observation.generated_len, observation.requested_k)
        generated = (1 - self.rho) * state.generated + self.rho * gen
        accepted = (1 - self.rho) * state.accepted + self.rho * observation.accepted
        wanted = math.ceil(generated + (self.delta if accepted >= generated else 0.0))
        return DiffuSpecState(generated, accepted, min(max(wanted, self.k_min), self.k_max))

    def spent(self, state: DiffuSpecState, cost: Cost) -> DiffuSpecState:
        return state

    def next_k(self, state: DiffuSpecState) -> int:
        return state.k

    def explain(self, state: DiffuSpecState) -> str:
        grows = f" + {self.delta:g}" if state.accepted >= state.generated else ""
        return f"mean L_gen {state.generated:.2f}{grows}, mean L_acc {state.accepted:.2f}"


@dataclass(frozen=True, slots=True)
class AcceptanceState:
    """The moving average of accepted lengths, and the next draft length."""

    accepted: float
    k: int


@dataclass(frozen=True, slots=True)
class AcceptanceController:
    """Follows acceptance alone, as Minions does: ceil(average L_acc) + delta, within guardrails.

    Where text goes on for ever, L_gen equals k and Eq. 10 never shortens a block; this does. The
    average starts at k_start - delta, and delta is what lets k grow again.
    """

    k_min: int
    k_max: int
    k_start: int
    rho: float
    delta: float

    learns: ClassVar[bool] = False

    @property
    def max_k(self) -> int:
        return self.k_max

    def initial(self) -> AcceptanceState:
        return AcceptanceState(self.k_start - self.delta, self.k_start)

    def update(self, state: AcceptanceState, observation: Observation) -> AcceptanceState:
        accepted = (1 - self.rho) * state.accepted + self.rho * observation.accepted
        wanted = math.ceil(accepted + self.delta)
        return AcceptanceState(accepted, min(max(wanted, self.k_min), self.k_max))

    def spent(self, state: AcceptanceState, cost: Cost) -> AcceptanceState:
        return state

    def next_k(self, state: AcceptanceState) -> int:
        return state.k

    def explain(self, state: AcceptanceState) -> str:
        return f"mean L_acc {state.accepted:.2f} + {self.delta:g}"


@dataclass(frozen=True, slots=True)
class FixedController:
    """Always the same length. Length 0 is plain decoding: no drafter is ever opened."""

    k: int

    learns: ClassVar[bool] = False

    @property
    def max_k(self) -> int:
        return self.k

    def initial(self) -> None:
        return None

    def update(self, state: None, observation: Observation) -> None:
        return None

    def spent(self, state: None, cost: Cost) -> None:
        return None

    def next_k(self, state: None) -> int:
        return self.k

    def explain(self, state: None) -> str:
        return "fixed"


PLAIN = FixedController(0)
