"""Drafter and target of two tokenizers over real gRPC: the tokens are those of plain decoding.

Both know one text by heart, each in its own tokens. The target draws from a sharp distribution, so
above temperature 0 it strays from the text and into the middle of its characters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from drafter_service import server as drafter_server
from drafter_service.batcher import Batcher
from drafter_service.bridge.bridged import BridgedLM
from drafter_service.bridge.pair import Pair
from drafter_service.client import DrafterClient
from drafter_service.compose import Strategies
from drafter_service.config import DrafterConfig
from drafter_service.engine import DrafterEngine
from drafter_service.models.port import Capabilities
from drafter_service.proposals.lattice import BlockScores
from foredraft.types import ModelInfo, Proposal, SamplingParams
from foredraft.vocabulary import Vocabulary
from orchestrator.config import OrchestratorConfig
from orchestrator.drive.pipeline import generate
from orchestrator.length.config import FixedConfig
from orchestrator.report import SpeculationReport
from orchestrator.request import GenerationRequest, StepEvent, Summary
from tests.support.drafters import ScriptedLM, scores_of
from tests.support.tokenizers_by_hand import (
    BOOK,
    DRAFTERS_PATTERN,
    TARGETS_PATTERN,
    saved,
    trained,
)
from tests.support.verifiers import CountingModel, make_engine
from verifier_service import server as verifier_server
from verifier_service.client import VerifierClient
from verifier_service.config import VerifierConfig
from verifier_service.runner import Runner

EOS, LONGEST, NEW = 0, 400, 150
TEXT = BOOK.encode()


def known(at: int, vocabulary: Vocabulary) -> list[int]:
    """The tokens of the text, over and over, from its byte `at` on."""
    return vocabulary.write((TEXT + TEXT)[at % len(TEXT) :][: len(TEXT)])


def length(vocabulary: Vocabulary, tokens: Sequence[int]) -> int:
    return sum(len(vocabulary.spelling[token]) for token in tokens)


class Reciting(CountingModel):
    """The target: its next token is the text's, before all others by e to the 6th."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(LONGEST, len(vocabulary.spelling))
        self.info = ModelInfo(
            len(vocabulary.spelling),
            LONGEST,
            "target's",
            "exact",
            "reciting",
            eos_token_ids=(EOS,),
        )
        self._vocabulary = vocabulary

    def logits(self, text: Sequence[int]) -> np.ndarray:
        row = np.zeros(len(self._vocabulary.spelling))
        row[EOS] = -9.0
        row[known(length(self._vocabulary, text), self._vocabulary)[0]] = 6.0
        return row


def reciting_drafter(vocabulary: Vocabulary) -> ScriptedLM:
    """The drafter, which errs in every slot with three in ten."""

    def script(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
        ahead = known(length(vocabulary, prefix), vocabulary)[:num_slots]
        return scores_of([{token: 0.7, 7: 0.1, 99: 0.1, EOS: 0.01} for token in ahead])

    model = ScriptedLM(script)
    size = len(vocabulary.spelling)
    model.capabilities = Capabilities("reciting", size, LONGEST, EOS, 16, "exact", 4, LONGEST, True)
    return model


@asynccontextmanager
async def serving(
    folder: Path, bridge: bool
) -> AsyncIterator[tuple[DrafterClient, VerifierClient, Vocabulary]]:
    drafter = Vocabulary(saved(trained(DRAFTERS_PATTERN, 330), folder / "drafter"))
    target = Vocabulary(saved(trained(TARGETS_PATTERN, 300), folder / "target"))
    own = reciting_drafter(drafter)
    pair = Pair(drafter, EOS, target, EOS, len(drafter.spelling))
    model = BridgedLM(own, pair, 16) if bridge else own
    config = DrafterConfig(model=Path("unused"), lookup={"max_tokens": 8})
    c = model.capabilities
    hash_ = "target's" if bridge else "drafter's"
    info = ModelInfo(c.vocab_size, c.max_len, hash_, "", c.name, eos_token_ids=(c.eos,))
    engine = DrafterEngine(model, Strategies(config, c).make, info, 8, 16)
    drafting = await drafter_server.serve_engine(Batcher(lambda: engine, 16), config)
    verifying = await verifier_server.serve_engine(
        VerifierConfig(model=Path()), Runner(lambda: make_engine(Reciting(target), kv_tokens=2048))
    )
    try:
        async with DrafterClient(f"127.0.0.1:{drafting.port}") as drafts:
            verdicts = VerifierClient(f"127.0.0.1:{verifying.port}")
            yield drafts, verdicts, target
            await verdicts.close()
    finally:
        await drafting.stop()
        await verifying.stop()


async def decoded(
    drafts: DrafterClient,
    verdicts: VerifierClient,
    prompt: Sequence[int],
    sampling: SamplingParams,
    proposal: Proposal | None,
) -> tuple[list[int], SpeculationReport]:
    name = f"{proposal} {sampling.temperature}"
    request = GenerationRequest(
        name, tuple(prompt), sampling, NEW, (EOS,), speculate=proposal is not None
    )
    config = OrchestratorConfig(
        proposal=proposal or Proposal.COUPLED, adl=FixedConfig(k=12), draft_deadline_ms=5000
    )
    tokens: list[int] = []
    report = None
    async for event in generate(request, drafts, verdicts, config):
        if isinstance(event, StepEvent):
            tokens += [each.token for each in event.tokens]
        if isinstance(event, Summary):
            report = event.report
    assert report is not None
    return tokens, report


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_a_bridged_drafter_changes_no_token_and_is_kept(
    temperature: float, tmp_path: Path
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=5)
    async with serving(tmp_path, bridge=True) as (drafts, verdicts, target):
        prompt = target.write(TEXT[:40])
        plain, _ = await decoded(drafts, verdicts, prompt, sampling, None)
        assert len(plain) == NEW
        said = b"".join(target.spelling[token] for token in plain)
        assert (TEXT * 9)[40:].startswith(said) == (temperature == 0)
        for proposal in (Proposal.COUPLED, Proposal.CPS, Proposal.TREE, Proposal.ARGMAX):
            tokens, report = await decoded(drafts, verdicts, prompt, sampling, proposal)
            assert tokens == plain
            assert report.mat > (6 if temperature == 0 else 2), proposal


async def test_without_a_bridge_another_tokenizer_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, bridge=False) as (drafts, verdicts, target):
        prompt = target.write(TEXT[:40])
        plain, _ = await decoded(drafts, verdicts, prompt, SamplingParams(), None)
        tokens, report = await decoded(drafts, verdicts, prompt, SamplingParams(), Proposal.COUPLED)
        assert tokens == plain
        assert report.num_accepted == 0 and report.draft_rounds <= 1
    assert "another tokenizer than target" in caplog.text
