"""Adaptive draft length: how many tokens to draft next. Pure: state in, state out, no clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from foredraft.types import NO_PRICE, Price
from orchestrator.length.load import load_of

S = TypeVar("S")


class Cause(StrEnum):
    """The class of reasons that a draft length was chosen for.

    drafts: a draft is expected to pay, or is configured. plain: decoding without one is. probe: a
    draft is tried although it is expected to lose, or little is known at this load. observe: the
    longest is tried, to observe all positions.
    """

    DRAFTS = "drafts"
    PLAIN = "plain"
    PROBE = "probe"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class Observation:
    """What one draft block came to, in tokens.

    requested_k is k_t, generated_len the drafter's L_gen, accepted L_acc: the block's tokens that
    turned out to be the target's. predicted is whether the round's outcome was a predicted one,
    None where none is predicted. places are where in the block the accepted tokens stood: of a path
    the first ones, of a tree one branch's.
    """

    requested_k: int
    generated_len: int
    accepted: int
    predicted: bool | None = None
    places: tuple[int, ...] = ()


class Cost(NamedTuple):
    """What one round took, of which k tokens were to be drafted (0: plain decoding).

    So many draft tokens were offered to the verifier, and bought; it committed so many tokens.
    away_s of its seconds were outside the verifier's passes; what passes took for prompts is in
    neither; price is what the next one goes by. As far as is known, plain decoding would have
    committed plain_tokens in plain_passes: a plain round did. Both are 0 where it is not known.
    """

    k: int
    offered: int
    bought: int
    tokens: int
    seconds: float
    away_s: float
    price: Price = NO_PRICE
    plain_tokens: int = 0
    plain_passes: int = 0

    def goes_with(self, later: Cost) -> bool:
        """Return whether this and a later round can be learnt from as one: both are plain by
        choice, at one load, and others draft beside both or neither.
        """
        if self.k or later.k or self.offered or later.offered:
            return False
        price, newer = self.price, later.price
        return (
            load_of(price.sessions) == load_of(newer.sessions)
            and (price.drafting > 0) == (newer.drafting > 0)
            and (self.plain_passes > 0) == (later.plain_passes > 0)
        )

    def and_then(self, later: Cost) -> Cost:
        """Return this and a later round that it goes with as one."""
        return later._replace(
            tokens=self.tokens + later.tokens,
            seconds=self.seconds + later.seconds,
            away_s=self.away_s + later.away_s,
            plain_tokens=self.plain_tokens + later.plain_tokens,
            plain_passes=self.plain_passes + later.plain_passes,
        )


class DraftLengthController(Protocol[S]):
    """Picks draft lengths; its state belongs to one session and one drafter."""

    @property
    def max_k(self) -> int:
        """The largest k that next_k can return."""

    def initial(self) -> S:
        """Return the state before the first block."""

    def resumed(self, saved: S, price: Price) -> tuple[S, S]:
        """Return what a session starts with, once others of its kind have ended, and what it leaves
        for the next one; price is the verifier's newest.
        """

    def joined(self, state: S, other: S) -> S:
        """Return state with what another session of its kind has learnt since, in other."""

    def ended(self, saved: S, state: S) -> S:
        """Return what is kept of a session that ended with state, saved being there already."""

    def update(self, state: S, observation: Observation) -> S:
        """Return the state after one more block."""

    def spent(self, state: S, cost: Cost) -> S:
        """Return the state after one more round, drafted for or plain."""

    def next_k(self, state: S) -> int:
        """Return the number of tokens to draft next; 0 means plain decoding."""

    def begin_pays(self, state: S, rows: int, opening_s: float, tokens_left: int) -> bool:
        """Return whether drafts for the tokens left are worth reading so many rows again, and
        opening a drafter's session, which takes opening_s.
        """

    def choose(self, state: S) -> tuple[int, Cause, str]:
        """Return next_k, the class of the reason for it, and the reason in a few words."""


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

    @property
    def max_k(self) -> int:
        return self.k_max

    def initial(self) -> DiffuSpecState:
        return DiffuSpecState(0.0, 0.0, self.k_max)

    def resumed(self, saved: DiffuSpecState, price: Price) -> tuple[DiffuSpecState, DiffuSpecState]:
        return self.initial(), saved

    def joined(self, state: DiffuSpecState, other: DiffuSpecState) -> DiffuSpecState:
        return state

    def ended(self, saved: DiffuSpecState, state: DiffuSpecState) -> DiffuSpecState:
        return saved

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

    def begin_pays(
        self, state: DiffuSpecState, rows: int, opening_s: float, tokens_left: int
    ) -> bool:
        return True

    def choose(self, state: DiffuSpecState) -> tuple[int, Cause, str]:
        grows = f" + {self.delta:g}" if state.accepted >= state.generated else ""
        reason = f"mean L_gen {state.generated:.2f}{grows}, mean L_acc {state.accepted:.2f}"
        return state.k, Cause.DRAFTS, reason


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

    @property
    def max_k(self) -> int:
        return self.k_max

    def initial(self) -> AcceptanceState:
        return AcceptanceState(self.k_start - self.delta, self.k_start)

    def resumed(
        self, saved: AcceptanceState, price: Price
    ) -> tuple[AcceptanceState, AcceptanceState]:
        return self.initial(), saved

    def joined(self, state: AcceptanceState, other: AcceptanceState) -> AcceptanceState:
        return state

    def ended(self, saved: AcceptanceState, state: AcceptanceState) -> AcceptanceState:
        return saved

    def update(self, state: AcceptanceState, observation: Observation) -> AcceptanceState:
        accepted = (1 - self.rho) * state.accepted + self.rho * observation.accepted
        wanted = math.ceil(accepted + self.delta)
        return AcceptanceState(accepted, min(max(wanted, self.k_min), self.k_max))

    def spent(self, state: AcceptanceState, cost: Cost) -> AcceptanceState:
        return state

    def next_k(self, state: AcceptanceState) -> int:
        return state.k

    def begin_pays(
        self, state: AcceptanceState, rows: int, opening_s: float, tokens_left: int
    ) -> bool:
        return True

    def choose(self, state: AcceptanceState) -> tuple[int, Cause, str]:
        return state.k, Cause.DRAFTS, f"mean L_acc {state.accepted:.2f} + {self.delta:g}"


@dataclass(frozen=True, slots=True)
class FixedController:
    """Always the same length. Length 0 is plain decoding: no drafter is ever opened."""

    k: int

    @property
    def max_k(self) -> int:
        return self.k

    def initial(self) -> None:
        return None

    def resumed(self, saved: None, price: Price) -> tuple[None, None]:
        return None, None

    def joined(self, state: None, other: None) -> None:
        return None

    def ended(self, saved: None, state: None) -> None:
        return None

    def update(self, state: None, observation: Observation) -> None:
        return None

    def spent(self, state: None, cost: Cost) -> None:
        return None

    def next_k(self, state: None) -> int:
        return self.k

    def begin_pays(self, state: None, rows: int, opening_s: float, tokens_left: int) -> bool:
        return True

    def choose(self, state: None) -> tuple[int, Cause, str]:
        return self.k, Cause.DRAFTS if self.k else Cause.PLAIN, "fixed"


PLAIN = FixedController(0)
