"""Public families of diffusion LMs: tiny checkpoints in their own formats against transformers.

The references are transformers' Qwen2, Qwen3 and Llama under a mask built here row by row, shifted
as the public code does it: cat(logits[:1], logits[:-1]).
"""

from __future__ import annotations

import asyncio
import json
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from deployments.orchestrator.config import FixedConfig, OrchestratorConfig
from deployments.orchestrator.local import LocalDrafter, LocalVerifier
from deployments.orchestrator.pipeline import generate
from deployments.orchestrator.request import GenerationRequest, StepEvent
from drafter_service.batcher import Batcher
from drafter_service.config import DrafterConfig
from drafter_service.families.adapter import FamilyDrafter
from drafter_service.load import load_engine, load_model
from drafter_service.model.port import BlockRequest
from foredraft.errors import WeightsError
from foredraft.types import DraftBlock, DraftOpen, Proposal, SamplingParams
from tests.unit.drafter.public_checkpoints import CASES, EOS, MASK, VOCAB, Case, write
from tests.unit.drafter.scripted import asking
from tests.unit.verifier.scripted import RandomModel, make_engine
from verifier_service.runner import Runner


def config_of(case: Case, folder: Path, **fields: Any) -> DrafterConfig:
    return DrafterConfig(model=folder, family=case.family, dtype="float32", **fields)


def expected(case: Case, reference: Any, text: list[int], slots: list[int]) -> torch.Tensor:
    """The logits [slots, vocabulary] of mask slots behind text; slots hold MASK or a token."""
    row = [*text, *slots]
    n = len(row)
    mask = torch.zeros(1, 1, n, n)
    for i in range(n):
        for j in range(n):
            if case.block and j // case.block > i // case.block:
                mask[0, 0, i, j] = torch.finfo(torch.float32).min
    with torch.no_grad():
        logits = reference(torch.tensor([row]), attention_mask=mask).logits[0]
    if case.shift:
        logits = torch.cat((logits[:1], logits[:-1]))
    return logits[len(text) :]


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    reference = write(case, tmp_path / "model")
    drafter = load_model(config_of(case, tmp_path / "model"))
    assert isinstance(drafter, FamilyDrafter)
    assert drafter.capabilities.vocab_size == VOCAB
    texts = [([5, 9, 33, 7, 12], [MASK] * 6), ([3], [MASK, 44, MASK]), ([8, 2, 61], [MASK])]
    requests = [
        BlockRequest(at, 0, text, len(slots), [-1 if s == MASK else s for s in slots])
        for at, (text, slots) in enumerate(texts)
    ]
    found = drafter.logits(requests)
    wanted = torch.cat([expected(case, reference, text, slots) for text, slots in texts])
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_drafts_through_the_engine(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    write(case, tmp_path / "model")
    engine = load_engine(config_of(case, tmp_path / "model", max_block=8))
    prefix = (5, 9, 33, 7, 12, 50, 3, 9)
    for proposal in (Proposal.COUPLED, Proposal.CPS, Proposal.TREE, Proposal.SAMPLED):
        sampling = SamplingParams(0.8, seed=4)
        handle, opened = engine.open(DraftOpen(proposal, prefix, sampling, proposal, 60))
        assert opened.max_block >= 7
        [block] = engine.propose([(handle, asking(proposal, prefix, 8, 6))])
        assert isinstance(block, DraftBlock)
        assert 0 < len(block.tokens) <= 6 and MASK not in block.tokens


async def decoded(drafter: LocalDrafter, runner: Runner, speculate: bool) -> list[int]:
    request = GenerationRequest(
        uuid.uuid4().hex, (5, 9, 33), SamplingParams(0.7, seed=2), 24, (EOS,), speculate=speculate
    )
    config = OrchestratorConfig(
        proposal=Proposal.TREE, adl=FixedConfig(k=6), draft_deadline_ms=5000
    )
    tokens: list[int] = []
    async for event in generate(request, drafter, LocalVerifier(runner), config):
        if isinstance(event, StepEvent):
            tokens += [each.token for each in event.tokens]
    return tokens


@pytest.mark.parametrize("name", CASES)
async def test_decoding_with_a_family_is_lossless(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    write(case, tmp_path / "model")
    runner = Runner(lambda: make_engine(RandomModel(vocab=VOCAB)))
    batcher = Batcher(partial(load_engine, config_of(case, tmp_path / "model", max_block=8)), 16)
    await asyncio.gather(runner.ready(), batcher.start())
    try:
        drafter = LocalDrafter(batcher)
        plain = await decoded(drafter, runner, speculate=False)
        assert await decoded(drafter, runner, speculate=True) == plain
        assert batcher.stats()["blocks"] > 3
    finally:
        await batcher.stop()
        await runner.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen2"}, "names no family"),
        ({"mask_token_id": None}, "no mask_token_id"),
        ({"mask_token_id": VOCAB}, "outside the vocabulary"),
        ({"eos_token_id": None}, "no eos_token_id"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "yarn"),
        ({"intermediate_size": 40}, "mlp.gate_proj"),
        ({"num_hidden_layers": 1}, "unknown weights"),
        ({"num_hidden_layers": 3}, "missing weights"),
    ],
)
def test_what_cannot_be_used_is_said(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    case = CASES["dream"]
    write(case, tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps(case.config | change))
    with pytest.raises(WeightsError, match=message):
        load_model(config_of(case, tmp_path / "model"))


def test_int8_is_the_embedded_familys_alone(tmp_path: Path) -> None:
    write(CASES["dream"], tmp_path / "model")
    with pytest.raises(WeightsError, match="int8"):
        load_model(DrafterConfig(model=tmp_path / "model", dtype="int8"))
    assert load_engine(DrafterConfig(model=tmp_path / "model")).info.numerics == "bfloat16"
