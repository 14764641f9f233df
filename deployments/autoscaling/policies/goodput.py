"""Ours: a drafter is worth the tokens per second that it adds, and has to be worth its price.

A drafter adds as many accepted tokens as the drafts that it makes in time have. What a draft has is
seen by the verifiers, who buy less of it the busier they are: at their limit drafts are worth
nothing, and the drafters go. They come back when the verifiers have passes to spare.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from deployments.autoscaling.policies.demand import DemandConfig, verifiers_needed
from deployments.autoscaling.policies.plain import plain_decoding
from deployments.autoscaling.policies.port import Wish, Wishes
from deployments.autoscaling.signals import PoolName, Signals
from foredraft.strict import StrictModel

# Weight of the newest estimate.
_NEWEST = 0.3
# Drafts a round from which an estimate has its full weight. Where the text's own n-grams draft, or
# drafts have just stopped, few drafts would else be credited with all that was accepted.
_MANY = 0.25
# How much faster than wanted plain decoding has to be, before drafters are given up for it.
_MARGIN = 0.8


class GoodputConfig(StrictModel):
    """Parameters of the policy `goodput`."""

    verifiers: DemandConfig = Field(default=DemandConfig(), description="Targets of verifiers.")
    drafter_busy: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Busy share up to which drafts are in time.",
    )
    price: float = Field(
        default=0.25, ge=0, description="Price of a drafter, that of a verifier being 1."
    )
    worth: float = Field(
        default=0.5,
        ge=0,
        description="Tokens per second that a drafter must add, as a share of what its price makes "
        "in the pools as they are.",
    )
    kept: float = Field(
        default=1.5, ge=0, description="Accepted tokens of a draft, before any was seen."
    )
    drafts_s: float = Field(
        default=50.0, gt=0, description="Drafts per busy second of a drafter, before any was seen."
    )
    token_s: float | None = Field(
        default=None,
        gt=0,
        description="Time per token that is soon enough: where plain decoding has it and costs no "
        "more, there are no drafters; null: a token is worth more the sooner it comes.",
    )
    spare_busy: float = Field(
        default=0.5, gt=0, le=1, description="Busy share of verifiers up to which drafters return."
    )
    probe_s: float = Field(
        default=60.0, ge=0, description="Time without drafters until they are tried again."
    )


class Seen(NamedTuple):
    """Estimates: accepted tokens of a draft, drafts per busy second; when drafters were last given
    up, None while there are some.
    """

    kept: float
    drafts_s: float
    given_up: float | None = None


class Goodput:
    """Scales drafters by what they add."""

    def __init__(self, config: GoodputConfig) -> None:
        self._config = config

    @property
    def initial(self) -> Seen:
        """What is assumed before anything was seen."""
        return Seen(self._config.kept, self._config.drafts_s)

    def step(self, state: Seen, signals: Signals) -> tuple[Seen, Wishes]:
        """Return what was seen, and a wish for each settled pool."""
        wishes: dict[PoolName, Wish] = {}
        verifiers = signals.verifiers
        if (need := verifiers_needed(verifiers, self._config.verifiers)) is not None:
            wishes[PoolName.VERIFIER] = need
        state = self._seen(state, signals)
        if verifiers.replicas and (signals.drafters.settled or not signals.drafters.target):
            state, wishes[PoolName.DRAFTER] = self._drafters(state, signals)
        return state, wishes

    def _seen(self, state: Seen, signals: Signals) -> Seen:
        """Take in what drafts were worth and how fast they were made."""
        drafts_s = sum(one.drafts_s for one in signals.drafters.replicas)
        busy = sum(one.drafts_s * one.draft_s for one in signals.drafters.replicas)
        if drafts_s <= 0 or busy <= 0:
            return state
        kept = sum(one.kept_s for one in signals.verifiers.replicas) / drafts_s
        rounds_s = sum(one.rounds_s for one in signals.verifiers.replicas)
        newest = _NEWEST * drafts_s / max(drafts_s, _MANY * rounds_s)
        return state._replace(
            kept=state.kept + newest * (kept - state.kept),
            drafts_s=state.drafts_s + newest * (drafts_s / busy - state.drafts_s),
        )

    def _drafters(self, state: Seen, signals: Signals) -> tuple[Seen, Wish]:
        pool, verifiers = signals.drafters, signals.verifiers.replicas
        if not sum(one.rounds_s for one in verifiers):
            return state, Wish(pool.least, "no rounds")
        if (wish := self._by_plain_decoding(signals)) is not None:
            return state, wish
        if pool.target:
            state = state._replace(given_up=None)
        else:
            state, refusal = self._asleep(state, signals)
            if refusal:
                return state, Wish(pool.least, refusal)
        # How fast a drafter is and what it adds is seen with one.
        most = pool.most if pool.target else 1
        return state, self._bought(state, signals, most)

    def _by_plain_decoding(self, signals: Signals) -> Wish | None:
        """Return a wish where drafts are worth nothing, or it is not known; None where they are."""
        config, pool, drafters = self._config, signals.verifiers, signals.drafters
        enough_s = config.token_s
        if enough_s is None or (found := plain_decoding(signals, config.verifiers)) is None:
            return None
        if found.token_s > enough_s * (_MARGIN if drafters.target else 1.0):
            return None
        takes = (
            f"plain decoding takes {1e3 * found.token_s:.0f} ms a token, {1e3 * enough_s:.0f} are "
            "soon enough"
        )
        if not drafters.target:
            # A growing load is the verifiers' to carry.
            return Wish(drafters.least, takes)
        if found.verifiers is None:
            return Wish(drafters.target, f"{takes}; verifiers are starting")
        if found.verifiers > pool.target + config.price * drafters.target:
            return None
        return Wish(drafters.least, f"{takes}, and needs {found.verifiers} verifiers")

    def _asleep(self, state: Seen, signals: Signals) -> tuple[Seen, str]:
        """Return why a pool of none stays so, "" where it is to be tried again."""
        config, verifiers = self._config, signals.verifiers.replicas
        given_up = signals.now if state.given_up is None else state.given_up
        state = state._replace(given_up=given_up)
        if sum(one.busy for one in verifiers) / len(verifiers) > config.spare_busy:
            return state, "verifiers have no passes to spare"
        if signals.now - given_up < config.probe_s and state.kept < config.kept:
            return state, f"a draft had {state.kept:.2f} tokens"
        # What drafts were worth, they were worth to busy verifiers.
        return state._replace(kept=max(state.kept, config.kept)), ""

    def _bought(self, state: Seen, signals: Signals, most: int) -> Wish:
        """Return as many drafters as are each worth their price, at most so many."""
        config, pool, verifiers = self._config, signals.drafters, signals.verifiers.replicas
        rounds_s = sum(one.rounds_s for one in verifiers)
        in_time_s = config.drafter_busy * state.drafts_s
        # What its price has made so far, spent on both pools as they are.
        made_s = sum(one.rounds_s + one.kept_s for one in verifiers)
        cost = signals.verifiers.target + config.price * pool.target
        least_s = config.worth * config.price * made_s / cost

        def added_s(nth: int) -> float:
            return state.kept * max(0.0, min(in_time_s, rounds_s - nth * in_time_s))

        bought = 0
        while bought < most and added_s(bought) > 0 and added_s(bought) >= least_s:
            bought += 1
        last = f"number {bought} adds {added_s(bought - 1):.0f} tokens/s, " if bought else ""
        reason = (
            f"{rounds_s:.0f} rounds/s, a draft has {state.kept:.2f} tokens, a drafter makes "
            f"{in_time_s:.0f} drafts/s in time: {last}one more {added_s(bought):.0f}, and has to "
            f"add {least_s:.0f}"
        )
        return Wish(max(pool.least, bought), reason)
