"""Sessions draft while the verifier's prices allow it; what it leaves out changes no token."""

from __future__ import annotations

import pytest

from foredraft.types import Price
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import FixedConfig, GoodputConfig
from tests.support.orchestrator.peers import (
    Collected,
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    plain,
    request,
)
from tests.support.orchestrator.running import run

PRICED = config(adl=GoodputConfig(lengths=(0, 4)))
CHEAP = Price(sessions=1, pass_s=0.01, row_s=0.0001)
DEAR = Price(sessions=64, pass_s=0.01, row_s=0.01)
BUSY = Price(sessions=8, pass_s=0.002, row_s=0.0004)


async def test_at_a_dear_price_a_session_decodes_plainly() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    verifier.price = DEAR
    _, report = await run(request(120), drafter, verifier, PRICED)
    assert report.draft_rounds <= 2
    assert [one.k for one in report.trace][-5:] == [0] * 5
    assert report.trace[-1].price == DEAR
    assert "plainly" in report.trace[-1].reason


async def test_when_the_price_falls_it_drafts_again() -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()

    async def price_falls(index: int) -> None:
        verifier.price = DEAR if index < 8 else CHEAP

    verifier.before = price_falls
    _, report = await run(request(200), drafter, verifier, PRICED)
    assert report.trace[6].k == 0
    assert report.trace[-1].k == 4


async def test_a_session_that_begins_at_a_dear_price_opens_no_drafter() -> None:
    state, verifier = ControllerState(), ScriptedVerifier()
    verifier.price = DEAR
    for most_opens in (1, 0):
        drafter, got = ScriptedDrafter(), Collected()
        async for event in generate(request(40), drafter, verifier, PRICED, state=state):
            got.add(event)
        assert got.tokens == plain(request().prompt, 40)
        assert len(drafter.opens) <= most_opens


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_what_is_left_out_of_a_draft_changes_no_token(most: int) -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    verifier.most_bought = most
    _, report = await run(request(60), drafter, verifier, config(adl=FixedConfig(k=6)))
    assert report.num_bought_tokens <= most * report.draft_rounds < report.num_draft_tokens
    # A perfect drafter: all that was bought is accepted.
    assert report.num_accepted >= report.num_bought_tokens - most


@pytest.mark.parametrize(("told_us", "drafts"), [(100_000, False), (0, True)])
async def test_rounds_beside_prompts_do_not_make_plain_decoding_slow(
    told_us: int, drafts: bool
) -> None:
    drafter, verifier = ScriptedDrafter(), ScriptedVerifier()
    verifier.price, verifier.prefill_us = BUSY, told_us

    now = 0.0

    async def others_prompts(index: int) -> None:
        nonlocal now
        now += 0.02 if verifier.rounds[index].draft else 0.1

    verifier.before = others_prompts
    state = ControllerState()
    # Beyond what is tried of what little is known of.
    for _ in range(4):
        got = Collected()
        async for event in generate(
            request(80), drafter, verifier, PRICED, lambda: now, state=state
        ):
            got.add(event)
    assert [bool(each.draft) for each in verifier.rounds[-8:]] == [drafts] * 8
