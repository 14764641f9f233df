"""A drafter that reads the target's hidden states, over real gRPC: DFlash on a Qwen3 target."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_service.client import DrafterClient, DrafterStream
from drafter_service.config import DrafterConfig
from drafter_service.server import serve as serve_drafter
from foredraft import limits
from foredraft.errors import Overloaded, Unavailable
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import size
from foredraft.types import (
    DraftBlock,
    DraftOpen,
    Proposal,
    Propose,
    Round,
    SamplingParams,
    Verdict,
    VerifyOpen,
)
from orchestrator.config import BreakerConfig, FixedConfig, OrchestratorConfig
from orchestrator.controller_state import ControllerState
from orchestrator.drive.pipeline import generate
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, StepEvent, Summary
from tests.unit.dflash_pair import HIDDEN, as_tensor, fused, write_drafter, write_target
from verifier_service.client import VerifierClient, VerifierStream
from verifier_service.config import FeaturesConfig, VerifierConfig
from verifier_service.server import serve as serve_verifier

PROMPT = tuple(3 + 7 * i % 19 for i in range(70))
CONFIG = OrchestratorConfig(
    proposal=Proposal.TREE,
    adl=FixedConfig(k=12),
    draft_deadline_ms=5000,
    breaker=BreakerConfig(cooldown_s=0.01, max_cooldown_s=0.02),
)


@dataclass
class Checkpoints:
    target: Path
    drafter: Path
    weights: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    folder = tmp_path_factory.mktemp("pair")
    target = write_target(folder / "target")
    return Checkpoints(target, folder / "drafter", write_drafter(folder / "drafter"))


@asynccontextmanager
async def verifying(target: Path, drafter: Path | None) -> AsyncIterator[VerifierClient]:
    config = VerifierConfig(
        model=target,
        dtype="fp32",
        kv_tokens=4096,
        row_budget=32,
        features=FeaturesConfig(model=drafter) if drafter else None,
    )
    server = await serve_verifier(config)
    client = VerifierClient(f"127.0.0.1:{server.port}")
    try:
        yield client
    finally:
        await client.close()
        await server.stop()


@asynccontextmanager
async def drafting(checkpoints: Checkpoints) -> AsyncIterator[DrafterClient]:
    config = DrafterConfig(
        model=checkpoints.drafter, target=checkpoints.target, dtype="float32", prefill_rows=16
    )
    server = await serve_drafter(config)
    try:
        async with DrafterClient(f"127.0.0.1:{server.port}") as client:
            yield client
    finally:
        await server.stop()


class Watched:
    """Both ports over their clients; what passes through is kept, and may be changed."""

    def __init__(self, client: Any, change: Callable[[Any], Any] = lambda passing: passing) -> None:
        self.client = client
        self.change = change
        self.opens: list[Any] = []
        self.passed: list[Any] = []
        # Streams are lost with these messages.
        self.lose: set[int] = set()

    async def open(self, request: DraftOpen | VerifyOpen) -> Any:
        self.opens.append(request)
        return _Stream(self, await self.client.open(request))


class _Stream:
    def __init__(self, port: Watched, stream: DrafterStream | VerifierStream) -> None:
        self._port, self._stream = port, stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def propose(self, request: Propose) -> DraftBlock:
        await self._pass(request)
        return await self._stream.propose(self._port.change(request))

    async def verify(self, request: Round) -> Verdict:
        verdict = self._port.change(await self._stream.verify(request))
        await self._pass(verdict)
        return verdict

    async def _pass(self, message: Any) -> None:
        self._port.passed.append(message)
        if len(self._port.passed) in self._port.lose:
            await self._stream.close()
            raise Unavailable("lost")


async def decoded(
    drafter: Any,
    verifier: Any,
    temperature: float = 1.5,
    state: ControllerState | None = None,
    config: OrchestratorConfig = CONFIG,
    **fields: Any,
) -> tuple[tuple[int, ...], SpeculationReport]:
    request = GenerationRequest(uuid.uuid4().hex, PROMPT, SamplingParams(temperature, seed=2), 60)
    tokens: list[int] = []
    async with asyncio.timeout(60):
        async for event in generate(
            replace(request, **fields), drafter, verifier, config, state=state
        ):
            if isinstance(event, StepEvent):
                tokens += [each.token for each in event.tokens]
            else:
                assert isinstance(event, Summary)
                summary = event
    return tuple(tokens), summary.report


def told_of(port: Watched) -> bytes:
    """All features that verdicts brought."""
    return b"".join(verdict.features for verdict in port.passed)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_decoding_is_lossless_and_features_are_those_of_transformers(
    checkpoints: Checkpoints, temperature: float
) -> None:
    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        plain, _ = await decoded(drafter, verifier, temperature, speculate=False)
        told, sent = Watched(verifier), Watched(drafter)
        tokens, report = await decoded(sent, told, temperature)
    assert tokens == plain and len(tokens) == 60
    assert report.draft_rounds > 10
    # The target's noise, which it shares, lets even a random drafter be right; greedily it is not.
    assert report.kept > 10 or temperature == 0
    assert report.run_ahead_rounds == 0
    # Not asked for before the drafter said that it needs them; then from the first token on.
    hashes = [each.features_hash for each in told.opens]
    assert hashes == ["", read_fusion(checkpoints.drafter).hash]
    features = told_of(told)
    text = [*PROMPT, *tokens]
    count = len(features) // size(1, HIDDEN)
    assert len(text) - 1 <= count
    expected = fused(checkpoints.target, checkpoints.weights, text)
    torch.testing.assert_close(
        as_tensor(features)[: len(text) - 1], expected[:-1], atol=1e-3, rtol=2**-7
    )
    # The drafter was given each of them once.
    given = b"".join(propose.features for propose in sent.passed)
    assert features.startswith(given) and len(given) > size(len(PROMPT), HIDDEN)


async def test_what_the_last_request_learnt_saves_the_next_one_a_move(
    checkpoints: Checkpoints,
) -> None:
    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        state, told = ControllerState(), Watched(verifier)
        first, report = await decoded(drafter, told, state=state)
        assert report.verifier_moves == 1
        again, report = await decoded(drafter, told, state=state)
        assert (again, report.verifier_moves) == (first, 0)
        assert report.draft_rounds > 3


async def test_another_drafter_is_given_all_features_again_in_chunks(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_FEATURES_CHUNK", 1000)
    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        plain, _ = await decoded(drafter, verifier, speculate=False)
        told, sent = Watched(verifier), Watched(drafter)
        sent.lose = {4}
        tokens, report = await decoded(sent, told)
    assert tokens == plain
    assert report.drafter_attaches == 2 and len(sent.opens) == 2
    again = sent.passed[4]
    assert len(again.features) == size(again.base.prefix_len - 1, HIDDEN) > 4000
    assert told_of(told).startswith(again.features)
    assert report.draft_rounds > 5


async def test_another_verifier_is_asked_for_what_is_not_there_yet(
    checkpoints: Checkpoints,
) -> None:
    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        plain, _ = await decoded(drafter, verifier, speculate=False)
        told, sent = Watched(verifier), Watched(drafter)
        # Its fourth verdict is lost on the way.
        told.lose = {4}
        tokens, report = await decoded(sent, told)
        assert tokens == plain
        assert report.verifier_moves == 2
        again = told.opens[2]
        assert again.features_from == len(again.prefix) - 1 > len(PROMPT)
        assert report.draft_rounds > 5
        kept = [verdict.features for at, verdict in enumerate(told.passed, 1) if at != 4]
        expected = fused(checkpoints.target, checkpoints.weights, [*PROMPT, *tokens])
        found = as_tensor(b"".join(kept))[: len(expected) - 1]
        torch.testing.assert_close(found, expected[:-1], atol=1e-3, rtol=2**-7)


async def test_a_drafter_of_another_fusion_is_refused_and_decoding_goes_on(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    write_drafter(tmp_path / "other", seed=9)
    for features in (tmp_path / "other", None):
        async with (
            verifying(checkpoints.target, features) as verifier,
            drafting(checkpoints) as drafter,
        ):
            plain, _ = await decoded(drafter, verifier, speculate=False)
            sent, told = Watched(drafter), Watched(verifier)
            tokens, report = await decoded(sent, told)
        assert tokens == plain
        assert report.draft_rounds == 0 and not sent.passed
        assert (
            report.drafter_refusal
            == "drafter dflash needs features that target target does not have"
        )
        assert not told_of(told)
        assert len(sent.opens) == len(told.opens) == 1


NAN = b"\xc0\x7f"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda features: features[:-2], "must have"),
        (lambda features: features[:-2] + NAN, "not finite"),
    ],
)
async def test_features_that_a_verifier_spoilt_cost_drafts_alone(
    checkpoints: Checkpoints, spoil: Callable[[bytes], bytes], why: str
) -> None:
    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        plain, _ = await decoded(drafter, verifier, speculate=False)
        told = Watched(verifier, lambda verdict: replace(verdict, features=spoil(verdict.features)))
        sent = Watched(drafter)
        tokens, report = await decoded(sent, told)
    assert tokens == plain
    assert not sent.passed and report.verifier_moves == 1
    assert report.drafter_refusal is not None
    assert "features" in report.drafter_refusal and why in report.drafter_refusal


@pytest.mark.parametrize(
    "spoil",
    [
        lambda features: features + bytes(size(500, HIDDEN)),
        lambda features: features[:-2] + NAN,
    ],
)
async def test_features_that_were_spoilt_on_the_way_are_refused_by_the_drafter(
    checkpoints: Checkpoints, spoil: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        plain, _ = await decoded(drafter, verifier, speculate=False)
        spoilt = 0

        def spoil_first(propose: Propose) -> Propose:
            nonlocal spoilt
            spoilt += 1
            return replace(propose, features=spoil(propose.features)) if spoilt < 3 else propose

        tokens, report = await decoded(Watched(drafter, spoil_first), verifier)
    assert tokens == plain
    assert "drafter left: features" in caplog.text
    assert report.drafter_attaches > 1 and report.draft_rounds > 0


async def test_without_room_for_another_open_it_is_decoded_plainly_in_long_steps(
    checkpoints: Checkpoints,
) -> None:
    class Full(Watched):
        async def open(self, request: DraftOpen | VerifyOpen) -> Any:
            if self.opens:
                raise Overloaded("full")
            return await super().open(request)

    async with (
        verifying(checkpoints.target, checkpoints.drafter) as verifier,
        drafting(checkpoints) as drafter,
    ):
        plain, _ = await decoded(drafter, verifier, speculate=False)
        tokens, report = await decoded(drafter, Full(verifier))
    assert tokens == plain
    assert (report.draft_rounds, report.verifier_moves) == (0, 0)
    assert report.rounds <= 10


async def test_nothing_is_told_that_nobody_asked_for(checkpoints: Checkpoints) -> None:
    async with verifying(checkpoints.target, checkpoints.drafter) as verifier:
        told = Watched(verifier)
        await decoded(None, told, speculate=False)
        assert told.opens[0].features_hash == "" and not told_of(told)
