"""Drafters with a shortlist, with and without the target's features, over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
import torch

from drafter_service.client import DrafterClient, DrafterStream
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import size
from foredraft.messages import DraftOpen
from foredraft_align.drafter.start import drafter_config, drafter_from_target
from orchestrator.controller_state import ControllerState
from tests.support.checkpoints import VOCABULARY, write_target
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
from tests.support.lease_pair import count_requests
from verifier_service import drafters

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", params=["tokens", "features"])
def checkpoints(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoints:
    folder = tmp_path_factory.mktemp(request.param)
    target = write_target(folder / "target", "llama").folder
    layers = (0,) if request.param == "features" else ()
    config = replace(drafter_config(target, 2, 12, 0, layers), shortlist_size=128)
    listed = tuple(range(0, VOCABULARY, 2))[:128]
    assert config.eos_token_id in listed
    model = drafter_from_target(config, target, listed, seed=0)
    with torch.no_grad():
        # Large enough to show.
        for parameter in (model.hidden_norm.weight,) if layers else ():
            parameter.fill_(0.5)
    model.save(folder / "drafter")
    return Checkpoints(target, folder / "drafter", {})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(checkpoints: Checkpoints) -> AsyncIterator[Served]:
    reads = checkpoints.drafter if "features" in str(checkpoints.drafter) else None
    async with verifying(checkpoints.target, reads) as verifier, drafting(checkpoints) as drafter:
        yield Served(verifier, drafter)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_decoding_is_lossless(
    served: Served, checkpoints: Checkpoints, temperature: float
) -> None:
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, temperature, speculate=False)
    verdicts, asked = Watched(verifier), Watched(drafter)
    tokens, report = await decoded(asked, verdicts, temperature)
    assert tokens == plain
    assert report.draft_rounds > 3
    if "features" not in str(checkpoints.drafter):
        return
    # All that came was passed on, each token's once.
    assert verdicts.opens[-1].features_hash == read_fusion(checkpoints.drafter).hash
    given = b"".join(propose.features for propose in asked.passed)
    assert told_of(verdicts).startswith(given) and len(given) > size(len(PROMPT), 64)


async def test_a_drafter_that_lost_its_cache_drafts_the_same(
    served: Served, checkpoints: Checkpoints
) -> None:
    verifier, drafter = served
    first = Watched(drafter)
    tokens, _ = await decoded(first, verifier)
    again = Watched(drafter)
    again.lose = {4}
    repeated, report = await decoded(again, verifier)
    assert repeated == tokens and report.drafter_attaches == 2


class Counting:
    """A drafter's port that counts the orchestrator's own requests."""

    def __init__(self, client: DrafterClient) -> None:
        self._client = client
        self.asked = 0

    async def open(self, request: DraftOpen) -> DrafterStream:
        stream = await self._client.open(request)
        count_requests(stream, self)
        return stream


LED = CONFIG.model_copy(update={"verifier_led_rounds": 4})


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_a_verifier_that_leads_sends_its_drafter_the_features(
    served: Served, temperature: float
) -> None:
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, temperature, speculate=False)
    state = ControllerState()
    await decoded(drafter, verifier, temperature, state=state)
    port = Counting(drafter)
    tokens, report = await decoded(port, verifier, temperature, state, LED)
    assert tokens == plain
    assert report.draft_rounds > 3 and report.drafter_attaches == 1
    assert port.asked <= 1


async def test_features_that_were_dropped_leave_the_rounds_to_the_orchestrator(
    served: Served, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier, drafter = served
    monkeypatch.setattr(drafters, "_MOST_UNSENT", 100)
    plain, _ = await decoded(drafter, verifier, speculate=False)
    port = Counting(drafter)
    tokens, report = await decoded(port, verifier, config=LED)
    assert tokens == plain and report.draft_rounds > 3
    if "features" in str(checkpoints.drafter):
        assert port.asked >= report.draft_rounds
