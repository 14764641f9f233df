"""Policies as functions: what they wish for, with which reason, and what they leave alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.autoscaling.config import ScalingConfig
from deployments.autoscaling.policies.goodput import Goodput, GoodputConfig
from deployments.autoscaling.policies.static import Static
from deployments.autoscaling.policies.utilisation import Utilisation, UtilisationConfig
from deployments.autoscaling.signals import (
    DrafterSignal,
    Pool,
    PoolName,
    Signals,
    VerifierSignal,
)

DRAFTER, VERIFIER = PoolName.DRAFTER, PoolName.VERIFIER


@dataclass
class Load:
    """A moment: what verifiers and drafters do, each like the others."""

    verifiers: int = 1
    drafters: int = 1
    busy: float = 0.4
    kv: float = 0.1
    sessions: float = 4
    waiting: float = 0
    rounds_s: float = 40
    kept: float = 2.0
    drafter_busy: float = 0.3
    now: float = 0.0
    pass_s: float = 0.0

    def signals(self) -> Signals:
        drafts_s = self.rounds_s if self.drafters else 0.0
        verifier = VerifierSignal(
            self.busy,
            self.kv,
            self.sessions,
            self.waiting,
            self.rounds_s,
            self.kept * drafts_s,
            self.pass_s,
        )
        each = self.verifiers * drafts_s / max(self.drafters, 1)
        draft_s = self.drafter_busy / each if each else 0.0
        drafter = DrafterSignal(self.drafter_busy, each, draft_s)
        return Signals(
            self.now,
            Pool((drafter,) * self.drafters, self.drafters, 0, 4),
            Pool((verifier,) * self.verifiers, self.verifiers, 1, 8),
        )


def wishes(policy, load):
    found = policy.step(policy.initial, load.signals())[1]
    return {pool: wish.replicas for pool, wish in found.items()}


def test_the_speed_of_a_drafter_is_that_of_the_time_in_which_it_drafted() -> None:
    """Rates look back further than the busy share, which falls first when the load does."""
    policy = Goodput(GoodputConfig(drafts_s=50.0))
    state = policy.initial
    falling = Load(drafter_busy=0.4).signals()
    [drafter] = falling.drafters.replicas
    late = drafter._replace(busy=0.1)
    falling = falling._replace(drafters=falling.drafters._replace(replicas=(late,)))
    for _ in range(40):
        state, _ = policy.step(state, falling)
    assert state.drafts_s == pytest.approx(100)


def test_static_wishes_for_the_same_always() -> None:
    assert wishes(Static(2, 3), Load(busy=1.0)) == {DRAFTER: 2, VERIFIER: 3}


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(), {DRAFTER: 1, VERIFIER: 1}),
        (Load(busy=0.95), {DRAFTER: 1, VERIFIER: 2}),
        (Load(verifiers=3, busy=0.2), {DRAFTER: 1, VERIFIER: 1}),
        (Load(kv=0.9), {DRAFTER: 1, VERIFIER: 2}),
        (Load(waiting=20), {DRAFTER: 1, VERIFIER: 3}),
        (Load(drafters=2, drafter_busy=0.9), {DRAFTER: 3, VERIFIER: 1}),
        (Load(busy=1.0, verifiers=8, kv=1), {DRAFTER: 1, VERIFIER: 8}),
        (Load(sessions=0, busy=0.0, drafter_busy=0.0), {DRAFTER: 0, VERIFIER: 1}),
        (Load(drafters=0), {DRAFTER: 1, VERIFIER: 1}),
        (Load(drafters=0, sessions=0), {DRAFTER: 0, VERIFIER: 1}),
    ],
)
def test_utilisation(load: Load, expected: dict[PoolName, int]) -> None:
    assert wishes(Utilisation(UtilisationConfig()), load) == expected


@pytest.mark.parametrize(
    ("load", "drafters"),
    [
        # 40 rounds/s, and a drafter makes 93 drafts/s in time.
        (Load(), 1),
        # A drafter that is slow: each makes 14 drafts/s in time.
        (Load(rounds_s=40, drafters=2, drafter_busy=1.0), 3),
        # Drafts that have nothing are worth nothing, and neither is a drafter without rounds.
        (Load(kept=0.01), 0),
        (Load(rounds_s=0, sessions=0, busy=0.0), 0),
        # None, and passes to spare: one is tried, at the assumed worth.
        (Load(drafters=0, busy=0.3), 1),
        (Load(drafters=0, busy=0.9), 0),
    ],
)
def test_goodput_buys_what_is_worth_its_price(load: Load, drafters: int) -> None:
    policy = Goodput(GoodputConfig())
    state = policy.initial
    for step in range(20):
        load.now = float(step)
        state, found = policy.step(state, load.signals())
    assert found[DRAFTER].replicas == drafters, found[DRAFTER].reason


def test_drafts_that_nearly_stopped_are_not_worth_all_that_was_accepted() -> None:
    """The n-grams' tokens are accepted, too: of one draft in a hundred rounds little is learnt."""
    policy, signals = Goodput(GoodputConfig()), Load(rounds_s=100, kept=2.0).signals()
    rare = signals.drafters._replace(replicas=(DrafterSignal(0.05, 1.0, 0.05),))
    state = policy.initial
    for _ in range(5):
        state, _ = policy.step(state, signals._replace(drafters=rare))
    # An even share for each draft would be 200.
    assert state.kept < 15
    for _ in range(40):
        state, _ = policy.step(state, signals)
    assert state.kept == pytest.approx(2.0, abs=0.01)


def test_goodput_gives_up_drafters_that_add_nothing_and_tries_again_later() -> None:
    policy, load = Goodput(GoodputConfig(probe_s=60)), Load(kept=0.0, busy=0.4)
    state = policy.initial
    for step in range(20):
        load.now = float(step)
        state, found = policy.step(state, load.signals())
    assert found[DRAFTER].replicas == 0 and "0.0" in found[DRAFTER].reason
    load.drafters = 0
    tried = []
    for step in range(20, 120):
        load.now = float(step)
        state, found = policy.step(state, load.signals())
        tried.append(found[DRAFTER].replicas)
    # Sixty seconds without, then one.
    assert tried.index(1) == 60 and set(tried[60:]) == {1}


def test_a_higher_price_buys_fewer() -> None:
    load = Load(rounds_s=40, drafters=2, drafter_busy=1.0, kept=0.5)
    bought = [
        wishes(Goodput(GoodputConfig(price=price, kept=0.5)), load)[DRAFTER]
        for price in (0.0, 0.25, 1.0, 4.0)
    ]
    assert bought == sorted(bought, reverse=True) and bought[0] > bought[-1]


@pytest.mark.parametrize("name", ["utilisation", "goodput"])
def test_without_signals_nothing_is_wished_for(name: str) -> None:
    policy = ScalingConfig(policy=name).chosen()
    nothing: Signals = Signals(0.0, Pool((), 1, 0, 4), Pool((), 1, 1, 4))
    assert policy.step(policy.initial, nothing)[1] == {}
    # Verifiers alone are scaled, where drafters have not reported yet.
    load = Load().signals()
    part = load._replace(drafters=load.drafters._replace(replicas=()))
    assert set(policy.step(policy.initial, part)[1]) == {VERIFIER}


shares = st.floats(0, 1)
rates = st.floats(0, 1e4)


@given(
    st.sampled_from(["static", "utilisation", "goodput"]),
    st.lists(
        st.tuples(
            st.lists(st.builds(DrafterSignal, shares, rates, rates), max_size=3),
            st.lists(
                st.builds(VerifierSignal, shares, shares, rates, rates, rates, rates), max_size=3
            ),
            st.integers(0, 4),
            st.integers(1, 4),
        ),
        max_size=6,
    ),
)
def test_whatever_comes_wishes_are_within_the_bounds(name, moments) -> None:
    config = {"policy": name, "static": {"drafters": 2, "verifiers": 2}}
    policy = ScalingConfig.model_validate(config).chosen()
    state = policy.initial
    for now, (drafters, verifiers, num_drafters, num_verifiers) in enumerate(moments):
        signals = Signals(
            float(now),
            Pool(tuple(drafters), num_drafters, 0, 4),
            Pool(tuple(verifiers), num_verifiers, 1, 4),
        )
        state, found = policy.step(state, signals)
        for pool, least in ((DRAFTER, 0), (VERIFIER, 1)):
            if pool in found:
                assert least <= found[pool].replicas <= 4
                assert found[pool].reason


@pytest.mark.parametrize(
    ("load", "drafters"),
    [
        # 4 sessions get 40 + 2 x 40 tokens/s, 33 ms each; without drafts a token takes a pass.
        (Load(pass_s=0.030), 0),
        (Load(pass_s=0.045), 1),
        # Sessions last longer without, three times as long: their KV needs one verifier more.
        (Load(pass_s=0.030, sessions=1.2, kv=0.3), 1),
        # Not known: as if there were no such thing.
        (Load(pass_s=0.0), 1),
        # Without drafters, too, a token takes a pass; a growing load is the verifiers' to carry.
        (Load(drafters=0, busy=0.3, pass_s=0.045), 0),
        (Load(drafters=0, busy=0.3, pass_s=0.055), 1),
        (Load(drafters=0, busy=0.3, pass_s=0.045, kv=0.9), 0),
    ],
)
def test_where_plain_decoding_is_fast_enough_nothing_is_drafted(load: Load, drafters: int) -> None:
    policy = Goodput(GoodputConfig(token_s=0.05))
    found = policy.step(policy.initial, load.signals())[1][DRAFTER]
    assert found.replicas == drafters, found.reason
    assert drafters or "plain decoding takes" in found.reason


def test_drafters_stay_while_it_is_not_known_what_plain_decoding_needs() -> None:
    policy = Goodput(GoodputConfig(token_s=0.05))
    for drafters in (0, 2):
        signals = Load(pass_s=0.030, drafters=drafters).signals()
        starting = signals._replace(verifiers=signals.verifiers._replace(target=2, young=1))
        found = policy.step(policy.initial, starting)[1]
        assert found[DRAFTER].replicas == drafters and VERIFIER not in found
