"""Models of every kind on a CUDA device: what they compute, or decode, is the CPU's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from denoiser_service.engine import DenoiserEngine
from drafter_service.load import load_model
from drafter_service.models.families.adapter import FamilyDrafter
from drafter_service.models.port import BlockRequest
from foredraft.denoising import Dynamic
from foredraft.layout import Layout
from foredraft.messages import VerifyOpen
from foredraft.types import SamplingParams
from tests.support.denoiser.paged import Reader
from tests.support.denoiser.paged import finish as finish_denoising
from tests.support.denoiser.paged import opening as denoise_opening
from tests.support.families.public import CASES, MASK, config_of, write
from tests.support.tiny_models import write_tiny
from tests.support.verifiers import round_after, verdict_of
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_table import KvBlocks
from verifier_service.load import load_target
from verifier_service.targets.engine import VerifierEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
PROMPT = tuple(range(40, 77))
L = 8


@pytest.mark.parametrize("name", CASES)
def test_a_drafters_logits_are_the_cpus(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    write(case, tmp_path / "model")
    requests = [
        BlockRequest(0, 0, [5, 9, 33, 7, 12], 6, [-1] * 6),
        BlockRequest(1, 0, [3], 3, [-1, 44, -1]),
        BlockRequest(2, 0, [8, 2, 61], 1, [-1]),
    ]
    found = []
    for device in ("cpu", "cuda"):
        drafter = load_model(config_of(case, tmp_path / "model", device=device))
        assert isinstance(drafter, FamilyDrafter)
        found.append(drafter.logits(requests).cpu())
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-3)


def target(folder: Path, device: str) -> Any:
    config = VerifierConfig(model=folder, device=device, dtype="fp32", kv_tokens=4096)
    model = load_target(config)
    return model, KvBlocks(model.pool, block_tokens=model.block_tokens, max_sessions=4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_block_diffusion_targets_text_is_the_cpus(tmp_path: Path, temperature: float) -> None:
    folder = write_tiny(tmp_path, block_diffusion={"block_length": L, "mask_token_id": MASK})
    request = denoise_opening(
        PROMPT, 40, temperature=temperature, seed=3, unmasking=Dynamic(0.02), drafts=0
    )
    texts = []
    for device in ("cpu", "cuda"):
        model, kv = target(folder, device)
        reader = Reader(DenoiserEngine(model, kv, lambda rule, most: lambda anchor: ()), request, L)
        reader.submit(1000)
        reader.hear(finish_denoising(reader.engine)[reader.handle])
        texts.append(reader.text)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_any_subset_targets_text_is_the_cpus(tmp_path: Path, temperature: float) -> None:
    folder = write_tiny(tmp_path, any_subset={"mask_token_id": MASK})
    given = tuple(np.random.default_rng(0).choice(80, len(PROMPT), replace=False).tolist())
    layout = Layout(80, tuple(sorted(given)))
    texts = []
    for device in ("cpu", "cuda"):
        model, kv = target(folder, device)
        engine, text = VerifierEngine(model, kv), PROMPT
        sampling = SamplingParams(temperature=temperature, seed=7)
        new = layout.length - len(PROMPT)
        handle = engine.open(VerifyOpen("s", PROMPT, sampling, new, 15, layout=layout))
        while len(text) < layout.length:
            steps = min(8, layout.length - len(text))
            text += verdict_of(engine, handle, round_after(text, steps=steps)).next_tokens
        texts.append(text)
    assert texts[0] == texts[1]
