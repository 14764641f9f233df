"""Every public family served over gRPC from a folder in its own format: drafts, no token lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drafter_service.client import DrafterClient
from drafter_service.config import DrafterConfig
from drafter_service.server import serve
from foredraft.messages import DraftOpen, VerifyOpen
from foredraft.rpc.server import ServiceServer
from foredraft.types import DraftParams, Proposal, SamplingParams
from orchestrator.config import DraftConfig, OrchestratorConfig
from orchestrator.drive.pipeline import generate
from orchestrator.in_process import LocalVerifier
from orchestrator.length.config import FixedConfig
from orchestrator.ports import DraftStream, VerifyStream
from orchestrator.request import GenerationRequest, StepEvent
from tests.support.drafters import asking
from tests.support.families import own_formats as checkpoints
from tests.support.families import public as public_checkpoints
from tests.support.families.own_formats import EOS, VOCAB, write_diffusion_gemma, write_mdlm
from tests.support.verifiers import RandomModel, make_engine
from verifier_service.runner import Runner

WRITERS: dict[str, Callable[[Path], object]] = {
    **{
        name: partial(public_checkpoints.write, case)
        for name, case in public_checkpoints.CASES.items()
    },
    "mdlm": write_mdlm,
    "diffusion_gemma": write_diffusion_gemma,
}
# DiffusionGemma has none.
MASKS = dict.fromkeys(public_checkpoints.CASES, public_checkpoints.MASK) | {
    "mdlm": checkpoints.MASK
}
PREFIX = (5, 9, 33, 7, 12, 50, 3, 9)
PROPOSALS = (Proposal.COUPLED, Proposal.CPS, Proposal.TREE, Proposal.SAMPLED, Proposal.ARGMAX)


@asynccontextmanager
async def serving(name: str, folder: Path) -> AsyncIterator[tuple[ServiceServer, DrafterClient]]:
    """Write a family's checkpoint, and serve it."""
    WRITERS[name](folder)
    config = DrafterConfig.model_validate(
        {
            "model": folder,
            # Its config.json says that it is a causal Qwen2.
            "family": name if name == "open_dcoder" else None,
            "dtype": "float32",
            "max_mask_slots": 8,
            "cache_tokens": 256,
            "prefix_refresh": 8,
            "prefill_rows": 4,
        }
    )
    server = await serve(config)
    try:
        async with DrafterClient(f"127.0.0.1:{server.port}") as client:
            yield server, client
    finally:
        await server.stop()


@pytest.mark.parametrize("name", WRITERS)
async def test_a_request_is_drafted_for_alike_alone_and_beside_others(
    name: str, tmp_path: Path
) -> None:
    async def block(client: DrafterClient, proposal: Proposal, steps: int) -> Any:
        stream = await client.open(
            DraftOpen(
                session := uuid.uuid4().hex,
                PREFIX,
                SamplingParams(0.8, seed=4),
                proposal,
                60,
                DraftParams(steps=steps),
            )
        )
        assert stream.opened.model.name == name.partition(",")[0]
        drafted = await stream.propose(asking(session, PREFIX, len(PREFIX), 6))
        await stream.close()
        # The weights that tokens were drawn by may differ in their last digit.
        return drafted.tokens, drafted.parents

    async with serving(name, tmp_path / "model") as (_, client):
        cases = [(proposal, steps) for proposal in PROPOSALS for steps in (1, 3)]
        alone = [await block(client, *case) for case in cases]
        beside = await asyncio.gather(*(block(client, *case) for case in cases))
        assert beside == alone
        for tokens, _ in alone:
            assert 0 < len(tokens) <= 6
            assert MASKS.get(name) not in tokens


class Attached:
    """A drafter's port that notes when a session is open."""

    def __init__(self, client: DrafterClient) -> None:
        self._client = client
        self.open_ = asyncio.Event()

    async def open(self, request: DraftOpen) -> DraftStream:
        stream = await self._client.open(request)
        self.open_.set()
        return stream


class AfterDrafter:
    """A verifier's port that waits for the drafter: else a short text may end without drafts."""

    def __init__(self, runner: Runner, drafter: Attached) -> None:
        self._verifier, self._drafter = LocalVerifier(runner), drafter

    async def open(self, request: VerifyOpen) -> VerifyStream:
        await self._drafter.open_.wait()
        return await self._verifier.open(request)


async def decoded(client: DrafterClient, runner: Runner, steps: int | None) -> list[int]:
    """The tokens of a request decoded plainly, or with drafts of so many steps."""
    request = GenerationRequest(
        uuid.uuid4().hex,
        (5, 9, 33),
        SamplingParams(0.7, seed=2),
        40,
        (EOS,),
        speculate=steps is not None,
    )
    config = OrchestratorConfig(
        proposal=Proposal.TREE,
        draft=DraftConfig(steps=steps or 1),
        adl=FixedConfig(k=6),
        draft_deadline_ms=5000,
    )
    tokens: list[int] = []
    drafter = Attached(client)
    verifier = LocalVerifier(runner) if steps is None else AfterDrafter(runner, drafter)
    async for event in generate(request, drafter, verifier, config):
        if isinstance(event, StepEvent):
            tokens += [each.token for each in event.tokens]
    return tokens


@pytest.mark.parametrize("name", WRITERS)
async def test_decoding_is_lossless(name: str, tmp_path: Path) -> None:
    runner = Runner(lambda: make_engine(RandomModel(vocab=VOCAB)))
    await runner.start()
    try:
        async with serving(name, tmp_path / "model") as (server, client):
            plain = await decoded(client, runner, None)
            assert len(plain) > 8
            one, three = await asyncio.gather(*(decoded(client, runner, n) for n in (1, 3)))
            assert one == three == plain
            assert server.stats()["blocks"] > 3
    finally:
        await runner.stop()
