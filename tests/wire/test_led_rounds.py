"""Requests decoded in led rounds: the same tokens, whatever is late, lost or full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from drafter_service.client import DrafterClient
from drafter_service.proposals.lattice import BlockScores
from foredraft.types import (
    Acceptance,
    Origin,
    Proposal,
    SamplingParams,
)
from orchestrator.config import BreakerConfig, NgramConfig
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import GoodputConfig
from orchestrator.request import GenerationRequest
from tests.support.lease_pair import (
    LED,
    NEW,
    PLAIN_TOKENS,
    PROMPT,
    VOCAB,
    Watched,
    decoded,
    drafter,
    half_right,
    pair,
    right,
    second_best,
    verifier,
)
from tests.support.waiting import eventually, settled, turns


@pytest.mark.parametrize("temperature", [0.0, 0.8, 3.0])
@pytest.mark.parametrize("proposal", [Proposal.COUPLED, Proposal.TREE, Proposal.CPS])
async def test_tokens_are_plain_decodings_and_the_orchestrator_requests_no_draft(
    temperature: float, proposal: Proposal
) -> None:
    async with pair() as both:
        plain, _ = await decoded(both, temperature=temperature, speculate=False)
        config = LED.model_copy(update={"proposal": proposal})
        tokens, report = await decoded(both, config, temperature)
        assert tokens == plain
        assert both.drafters.asked == 0
        assert report.draft_rounds > 4 and report.drafter_attaches == 1
        if temperature == 0:
            assert plain == PLAIN_TOKENS and report.mat > 1
        await eventually(lambda: both.gauges() == 0)


@pytest.mark.parametrize(
    ("acceptance", "proposal"),
    [
        (Acceptance.REJECTION, Proposal.SAMPLED),
        (Acceptance.BLOCK, Proposal.SAMPLED),
        (Acceptance.L2R, Proposal.CPS),
    ],
)
async def test_other_rules_decide_as_in_rounds_of_the_orchestrator(
    acceptance: Acceptance, proposal: Proposal
) -> None:
    changes = {"acceptance": acceptance, "proposal": proposal}
    async with pair() as both:
        found = []
        for rounds in (0, 4):
            config = LED.model_copy(update={**changes, "verifier_led_rounds": rounds})
            config = config.model_copy(update={"run_ahead_min_hit_rate": 1.0})
            found.append((await decoded(both, config, 0.8))[0])
        assert found[0] == found[1]


async def test_a_drafter_reads_the_prompt_while_the_first_token_is_decided() -> None:
    model = Watched()
    async with pair(model) as both:
        tokens, report = await decoded(both)
        assert tokens == PLAIN_TOKENS and both.drafters.asked == 0
        assert report.rounds > report.draft_rounds
        # For the prompt's sake a draft is asked for that is shorter than those to come.
        first, second = (max(each.num_slots for each in batch) for batch in model.passes[:2])
        assert first < second


@pytest.mark.parametrize("new", [1, 2, 3, 7])
async def test_a_text_ends_where_it_was_to(new: int) -> None:
    async with pair() as both:
        assert (await decoded(both, new=new))[0] == PLAIN_TOKENS[:new]
        stopped, _ = await decoded(both, stops=(PLAIN_TOKENS[new],))
        assert stopped == PLAIN_TOKENS[: new + 1]
        await eventually(lambda: both.gauges() == 0)


async def test_a_lost_drafter_costs_drafts_alone_and_another_one_takes_over() -> None:
    async with pair() as both:

        async def kill(number: int) -> None:
            if number == 3:
                await both.drafters.kill()
            if number == 7:
                another = await drafter()
                both.drafters.servers.append(another)
                await eventually(lambda: another.stats()["sessions"] > 0)

        tokens, report = await decoded(both, watch=kill, new=200)
        assert tokens == [(PROMPT[-1] + 1 + at) % VOCAB for at in range(200)]
        assert report.drafter_attaches == 2 and report.origins[Origin.PLAIN] > 0
        assert report.trace[-1].k == 6


async def test_a_drafter_that_breaks_is_left() -> None:
    model = Watched()
    async with pair(model) as both:

        def spoil(number: int) -> None:
            model.broken = number in (3, 4)

        tokens, report = await decoded(both, watch=spoil, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert report.drafter_attaches >= 2


async def test_a_late_draft_is_not_waited_for() -> None:
    model = Watched()
    model.late = {3, 4, 5}
    config = LED.model_copy(update={"draft_deadline_ms": 200.0})
    async with pair(model) as both:
        model.rounds = lambda: both.verifiers.servers[0].stats()["rounds"]
        tokens, report = await decoded(both, config, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert report.origins[Origin.PLAIN] > 0 and report.draft_rounds > 10


async def test_drafts_that_are_late_now_and_then_lose_no_drafter() -> None:
    model = Watched()
    breaker = BreakerConfig(threshold=4, cooldown_s=0.01, max_cooldown_s=0.02)
    config = LED.model_copy(update={"draft_deadline_ms": 200.0, "breaker": breaker})
    model.late = {5, 15, 25, 35}
    async with pair(model) as both:
        model.rounds = lambda: both.verifiers.servers[0].stats()["rounds"]
        tokens, report = await decoded(both, config, new=200)
        assert len(tokens) == 200 and tokens[:NEW] == PLAIN_TOKENS
        assert report.origins[Origin.PLAIN] >= 4 and report.rounds > 36
        assert report.drafter_attaches == 1 and both.drafters.asked == 0


async def test_a_lost_verifier_is_replaced_in_the_middle_of_a_lease() -> None:
    async with pair() as both:

        async def kill(number: int) -> None:
            if number == 4:
                both.verifiers.servers.append(await verifier())
                await both.verifiers.servers.pop(0).stop()

        tokens, report = await decoded(both, watch=kill)
        assert tokens == PLAIN_TOKENS
        assert report.verifier_moves == 1 and both.drafters.asked == 0


async def test_a_draining_verifier_is_left_after_the_round_under_way() -> None:
    async with pair() as both:
        draining: list[asyncio.Task[None]] = []

        async def drain(number: int) -> None:
            if number == 4:
                both.verifiers.servers.append(await verifier())
                draining.append(asyncio.create_task(both.verifiers.servers.pop(0).drain(5.0)))
                await turns()

        tokens, report = await decoded(both, watch=drain)
        assert tokens == PLAIN_TOKENS and report.verifier_moves == 1
        await draining[0]


async def test_without_a_way_to_drafters_the_orchestrator_leads() -> None:
    async with pair(connect=None) as both:
        tokens, report = await decoded(both)
        assert tokens == PLAIN_TOKENS
        assert both.drafters.asked > 0 and report.mat > 1


async def test_where_the_verifier_cannot_reach_drafters_the_orchestrator_leads() -> None:
    async with pair(connect=lambda _: DrafterClient("127.0.0.1:1")) as both:
        tokens, report = await decoded(both, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert both.drafters.asked > 4 and report.mat > 1


async def test_drafts_that_need_work_by_the_orchestrator_are_its_own() -> None:
    # Its vocabulary is padded: what it has beyond the target's is left out here.
    async with pair() as both:
        await both.drafters.kill()
        both.drafters.servers.append(await drafter(vocab=VOCAB + 1))
        tokens, report = await decoded(both, new=100)
        assert len(tokens) == 100 and tokens[:NEW] == PLAIN_TOKENS
        assert both.drafters.asked >= report.draft_rounds > 4 and report.mat > 1


@pytest.mark.parametrize("deadline_ms", [1e-4, 1e6])
async def test_deadlines_that_do_not_travel_are_cut(deadline_ms: float) -> None:
    config = LED.model_copy(update={"draft_deadline_ms": deadline_ms})
    async with pair() as both:
        assert (await decoded(both, config))[0] == PLAIN_TOKENS


async def test_a_drafter_whose_address_does_not_travel_is_the_orchestrators() -> None:
    async with pair() as both:
        both.drafters.scheme = "ipv4:"
        tokens, report = await decoded(both)
        assert tokens == PLAIN_TOKENS and report.drafter_attaches == 1
        assert both.drafters.asked >= report.draft_rounds > 4


async def test_lengths_are_adapted_and_plain_rounds_come_between() -> None:
    config = LED.model_copy(update={"adl": GoodputConfig(lengths=(0, 2, 6))})
    async with pair() as both:
        for _ in range(3):
            tokens, report = await decoded(both, config, new=120)
            assert tokens[:NEW] == PLAIN_TOKENS and len(tokens) == 120
        assert {one.k for one in report.trace} & {2, 6}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_the_drafter_is_asked_where_the_texts_n_grams_do_not_suffice(
    temperature: float,
) -> None:
    config = LED.model_copy(update={"proposal": Proposal.TREE, "ngram": NgramConfig(enabled=True)})
    model = Watched()
    async with pair(model) as both:
        plain, _ = await decoded(both, temperature=temperature, new=100, speculate=False)
        tokens, report = await decoded(both, config, temperature, new=100)
        assert tokens == plain and both.drafters.asked == 0
        # It counts from 0 to 15 over and over: seen once, it is known.
        asked = len([r for batch in model.passes for r in batch if r.num_slots])
        assert 0 < report.ngram_rounds < report.draft_rounds
        assert both.drafters.servers[0].stats()["blocks"] == asked


@pytest.mark.parametrize("script", [right, second_best, half_right])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_the_next_draft_is_requested_ahead(
    script: Callable[..., BlockScores], temperature: float
) -> None:
    config = LED.model_copy(update={"run_ahead_min_hit_rate": 0.0})
    async with pair(Watched(script)) as both:
        plain, _ = await decoded(both, temperature=temperature, new=100, speculate=False)
        tokens, report = await decoded(both, config, temperature, new=100)
        assert tokens == plain and both.drafters.asked == 0
        assert report.run_ahead_rounds > 4
        # What is half right names the right third token for none of the outcomes.
        assert report.run_ahead_hits or (script is half_right and temperature == 0)


async def test_a_slow_reader_stops_the_verifier_after_what_was_granted() -> None:
    async with pair() as both:
        server = both.verifiers.servers[0]

        async def read_slowly(number: int) -> None:
            if number == 2:
                done = await settled(lambda: server.stats()["rounds"])
                assert 2 + 4 < done < 2 + 2 * 4 + LED.read_ahead + 2

        tokens, _ = await decoded(both, watch=read_slowly, new=200)
        assert len(tokens) == 200


async def test_a_client_that_goes_frees_both_sides() -> None:
    async with pair() as both:
        request = GenerationRequest("s", PROMPT, SamplingParams(), 400)
        events = generate(request, both.drafters, both.verifiers, LED)
        async for _ in events:
            break
        await events.aclose()
        await eventually(lambda: both.gauges() == 0)


async def test_many_at_once_get_what_they_get_alone() -> None:
    async with pair() as both:
        alone = [await decoded(both, temperature=t) for t in (0.0, 0.7, 1.3)]
        config = LED
        together = await asyncio.gather(
            *(decoded(both, config, temperature=t) for t in (0.0, 0.7, 1.3) * 2)
        )
        assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone] * 2
