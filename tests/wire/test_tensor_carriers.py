"""Features through a store in place of chunks, over real gRPC: the same drafts and verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from drafter_service.client import DrafterClient
from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import Unavailable
from foredraft.features.wire import size
from foredraft.messages import DraftOpen, Propose
from foredraft.types import Base, Proposal, SamplingParams, Stored
from orchestrator.controller_state import ControllerState
from tests.support.families.dflash import HIDDEN
from tests.support.families.served_dflash import (
    CONFIG,
    PROMPT,
    Checkpoints,
    Served,
    Watched,
    decoded,
    drafting,
    told_of,
    verifying,
)
from tests.support.tensor_store import MemoryStore

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of the prompt's features, and of every verdict's.
LARGE, ALL = size(len(PROMPT) - 1, HIDDEN), 0


@asynccontextmanager
async def stored(
    checkpoints: Checkpoints, least: int
) -> AsyncIterator[tuple[Served, MemoryStore, MemoryStore]]:
    """Both services over a store, with the verifier's side of it and the drafter's."""
    held: dict[bytes, bytes] = {}
    of_verifier, of_drafter = MemoryStore(held, least), MemoryStore(held, least)
    async with (
        verifying(checkpoints.target, checkpoints.drafter, of_verifier) as verifier,
        drafting(checkpoints, of_drafter) as drafter,
    ):
        yield Served(verifier, drafter), of_verifier, of_drafter


async def run(
    served: Served, temperature: float, **fields: Any
) -> tuple[tuple[int, ...], Watched, Watched]:
    told, sent = Watched(served.verifier), Watched(served.drafter)
    # The second request knows which features are read, and from which store.
    state = ControllerState()
    await decoded(served.drafter, served.verifier, temperature, state=state, **fields)
    tokens, _ = await decoded(sent, told, temperature, state=state, **fields)
    return tokens, told, sent


def rounds(told: Watched) -> dict[tuple[int, int], Any]:
    """Drafts and the verdicts on them, by the prefix's length and what the verifier left out.

    The clock decides whether a draft is late and how much of it is bought, never what comes of it.
    """
    verdicts = {v.base.prefix_len: v for v in told.passed}
    return {
        (length, verdict.left_out): (
            each.draft,
            each.parents,
            (verdict.accepted, verdict.next_tokens, verdict.path),
        )
        for each in told.rounds
        if each.draft and (verdict := verdicts.get(length := each.base.prefix_len))
    }


@pytest.mark.parametrize("least", [LARGE, ALL])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_drafts_and_verdicts_are_the_same(
    served: Served, checkpoints: Checkpoints, temperature: float, least: int
) -> None:
    expected, told, _ = await run(served, temperature)
    async with stored(checkpoints, least) as (both, of_verifier, of_drafter):
        found, stored_told, _ = await run(both, temperature)
    assert found == expected
    in_chunks, by_store = rounds(told), rounds(stored_told)
    both_have = in_chunks.keys() & by_store.keys()
    # How many, the clock decides.
    assert both_have
    assert [in_chunks[at] for at in both_have] == [by_store[at] for at in both_have]
    # The first verdict's features, or all, were stored once and read by the drafter alone.
    by_reference = [v for v in stored_told.passed if v.feature_parts]
    assert 1 <= len(by_reference) < len(stored_told.passed) or least == ALL
    assert least == LARGE or all(v.feature_parts for v in stored_told.passed)
    assert all(isinstance(p, Stored) for v in by_reference for p in v.feature_parts)
    assert sum(size for size in of_verifier.put_sizes if size >= LARGE) >= LARGE
    assert of_drafter.num_read > 0 == of_verifier.num_read
    assert not of_drafter.put_sizes
    # Both requests have ended: nothing is kept.
    assert not of_verifier.held
    assert len(told_of(told)) > len(told_of(stored_told))


async def test_rounds_that_the_verifier_leads_store_them_for_the_drafter(
    served: Served, checkpoints: Checkpoints
) -> None:
    config = CONFIG.model_copy(update={"verifier_led_rounds": 8})
    expected, _, _ = await run(served, 1.5, config=config)
    async with stored(checkpoints, ALL) as (both, of_verifier, of_drafter):
        tokens, _, _ = await run(both, 1.5, config=config)
    assert tokens == expected
    assert of_drafter.num_read > 3 and not of_verifier.held


async def test_what_the_store_has_lost_costs_drafts_alone(
    served: Served, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    plain, _ = await decoded(served.drafter, served.verifier, speculate=False)
    async with stored(checkpoints, ALL) as (both, _, of_drafter):
        of_drafter.loses = True
        told, sent = Watched(both.verifier), Watched(both.drafter)
        tokens, report = await decoded(sent, told)
        assert tokens == plain
        assert "drafter left: it is gone" in caplog.text
        # Once: the verifier was opened again, and asked for chunks.
        assert [each.tensor_store for each in told.opens] == ["", of_drafter.store, ""]
        assert report.drafter_attaches == 2 and report.draft_rounds > 0
        assert sent.passed[-1].features
        # Another session has what is stored.
        of_drafter.loses = False
        tokens, report = await decoded(both.drafter, both.verifier)
        assert tokens == plain and report.drafter_attaches == 1


async def test_a_reference_of_nobody_is_refused_and_ends_one_stream(
    checkpoints: Checkpoints,
) -> None:
    def forged(propose: Propose) -> Propose:
        parts = tuple(
            Stored(b"forged", part.size) if isinstance(part, Stored) else part
            for part in propose.feature_parts
        )
        return replace(propose, feature_parts=parts)

    async with stored(checkpoints, ALL) as (both, _, of_drafter):
        plain, _ = await decoded(both.drafter, both.verifier, speculate=False)
        tokens, report = await decoded(Watched(both.drafter, forged), both.verifier)
        assert tokens == plain and report.draft_rounds > 0
        assert of_drafter.num_read == 0


async def test_a_full_store_leaves_chunks(served: Served, checkpoints: Checkpoints) -> None:
    expected, _, _ = await run(served, 1.5)
    async with stored(checkpoints, ALL) as (both, of_verifier, of_drafter):
        of_verifier.full = True
        found, _, _ = await run(both, 1.5)
    assert found == expected and of_drafter.num_read == 0


async def test_a_drafter_without_the_store_gets_chunks(
    served: Served, checkpoints: Checkpoints
) -> None:
    expected, _, _ = await run(served, 1.5)
    store = MemoryStore({}, ALL)
    async with verifying(checkpoints.target, checkpoints.drafter, store) as verifier:
        found, _, _ = await run(Served(verifier, served.drafter), 1.5)
    assert found == expected and not store.put_sizes


async def test_a_proposal_that_is_cancelled_while_it_is_stored_ends_its_stream(
    checkpoints: Checkpoints,
) -> None:
    under_way = asyncio.Event()

    class Slow(MemoryStore):
        async def put(self, data: bytes) -> bytes | None:
            under_way.set()
            await asyncio.sleep(60)
            return await super().put(data)

    store = Slow({}, ALL)
    async with drafting(checkpoints, store) as drafter:
        client = DrafterClient(drafter.address, carrier=store)
        opening = DraftOpen("s", PROMPT, SamplingParams(), Proposal.TREE, 120)
        stream = await client.open(opening)
        base = Base("s", 0, len(PROMPT), hash_prefix(PROMPT))
        request = Propose(base, len(PROMPT), (), 4, bytes(LARGE))
        asking = asyncio.create_task(stream.propose(request))
        await under_way.wait()
        asking.cancel()
        with pytest.raises(Unavailable):
            await stream.propose(replace(request, features=b""))
        await client.close()
