"""Whole simulations, with exact expectations."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from foredraft.errors import InvalidRequest
from foredraft_simulator.outcome import Outcome, Waste
from foredraft_simulator.simulate import simulate
from foredraft_simulator.traces.arrival import Arrival
from tests.support.scenarios import PASS_S, scenario
from verifier_service.schedule.market import Market

ONE = [Arrival(0.0, 1, 101)]


def tokens_of(outcome: Outcome) -> list[int]:
    return [each.tokens for each in outcome.requests]


def test_plain_decoding_gives_one_token_a_pass() -> None:
    outcome = simulate(scenario(speculate=False), ONE)
    [request] = outcome.requests
    assert request.ttft_s == pytest.approx(PASS_S, rel=1e-4)
    assert request.tpot_s == pytest.approx(PASS_S, rel=1e-4)
    assert outcome.throughput == pytest.approx(1 / PASS_S, rel=1e-4)
    assert outcome.waste == Waste(0, 0, 0, 0)


def test_perfect_drafts_give_a_token_more_than_they_have_in_each_pass() -> None:
    outcome = simulate(scenario(acceptance={"rates": [1.0]}), ONE)
    [request] = outcome.requests
    # A first plain token, the rest of the prompt's draft, then rounds of 4 draft tokens and the
    # bonus.
    assert outcome.seconds == pytest.approx(22 * PASS_S, rel=1e-4)
    assert (request.rounds, request.accepted) == (22, 79)


def test_drafts_known_to_be_useless_are_not_verified() -> None:
    outcome = simulate(scenario(acceptance={"rates": [0.0]}), ONE)
    assert outcome.seconds == pytest.approx(101 * PASS_S, rel=1e-4)
    assert outcome.waste.bought == 0 < outcome.waste.offered


def test_a_link_adds_its_delay_four_times_a_round() -> None:
    slow = {"link": {"delay_ms": 2.0}}
    near = simulate(scenario(acceptance={"rates": [1.0]}), ONE)
    far = simulate(scenario(acceptance={"rates": [1.0]}, drafter=slow, verifier=slow), ONE)
    # To the verifier and back to open it, and for the first token; then for each of 20 rounds to
    # the drafter and back, to the verifier and back.
    assert far.seconds - near.seconds == pytest.approx((4 + 20 * 4) * 2e-3, rel=1e-4)


def test_sessions_share_passes() -> None:
    outcome = simulate(scenario(speculate=False), [Arrival(0.0, 1, 101)] * 8)
    assert outcome.throughput == pytest.approx(8 / PASS_S, rel=0.02)


@pytest.mark.parametrize("pool", ["drafter", "verifier"])
@pytest.mark.parametrize("kind", ["lost", "stall", "cut"])
def test_no_failure_loses_or_changes_a_token(pool: str, kind: str) -> None:
    """The ingress compares every text with the target's."""
    failure: dict[str, Any] = {"at_s": 0.05, "pool": pool, "kind": kind}
    if kind != "lost":
        failure["for_s"] = 0.5
    outcome = simulate(scenario(failures=[failure]), [Arrival(0.0, 20, 101)] * 4)
    assert outcome.errors == 0
    assert tokens_of(outcome) == [101] * 4
    moved = sum(each.verifier_moves for each in outcome.requests)
    assert (moved > 0) == (pool == "verifier" and kind == "lost")


def test_a_scenarios_failures_are_no_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    failure = {"at_s": 0.05, "pool": "drafter", "kind": "lost"}
    simulate(scenario(failures=[failure]), [Arrival(0.0, 20, 101)])
    assert not caplog.text
    logging.getLogger("orchestrator").warning("of a real session")
    assert "of a real session" in caplog.text


def test_the_same_seed_gives_the_same_outcome_and_another_one_another() -> None:
    jittery = {"link": {"delay_ms": 1.0, "jitter_ms": 3.0, "loss": 0.01}}
    config = scenario(drafter=jittery, verifier=jittery, acceptance={"rates": [0.7]})
    arrivals = [Arrival(0.01 * number, 10 + number, 40) for number in range(12)]

    def outcome(seed: int) -> Outcome:
        return replace(simulate(config, arrivals, seed), wall_s=0.0)

    assert outcome(1) == outcome(1)
    assert outcome(1).requests != outcome(2).requests


def test_the_real_market_and_controllers_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that computes each row in turn has drafts left out."""
    bought: list[int] = []
    real = Market.passed

    def watched(self: Market, *arguments: Any) -> None:
        real(self, *arguments)
        bought.append(self.counts.bought)

    monkeypatch.setattr(Market, "passed", watched)
    by_rows = {"pace": {**scenario().verifier.pace.model_dump(), "peak_flops": 1e3}}
    orchestrator = {
        "adl": {"name": "goodput"},
        "stream_interval_ms": 0,
        "run_ahead_min_hit_rate": 1.0,
    }
    config = scenario(verifier=by_rows, orchestrator=orchestrator, acceptance={"rates": [0.9]})
    outcome = simulate(config, [Arrival(0.0, 5, 60)] * 16)
    assert bought
    assert outcome.waste.bought < outcome.waste.offered
    assert tokens_of(outcome) == [60] * 16


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="request 1"):
        simulate(scenario(), [Arrival(0.0, 1, 1), Arrival(0.0, 0, 1)])
    with pytest.raises(InvalidRequest, match="number of requests"):
        simulate(scenario(), [])
    with pytest.raises(InvalidRequest, match="impossible time"):
        simulate(scenario(), [Arrival(float("nan"), 1, 1)])


def test_requests_are_numbered_in_the_order_of_their_times() -> None:
    arrivals = [Arrival(0.3, 30, 8), Arrival(0.1, 10, 9), Arrival(0.2, 20, 10)]
    outcome = simulate(scenario(), arrivals)
    assert [each.prompt_tokens for each in outcome.requests] == [10, 20, 30]
    assert tokens_of(outcome) == [9, 10, 8]
