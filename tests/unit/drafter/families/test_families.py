"""Public families of diffusion LMs: tiny checkpoints in their own formats against transformers.

The references are transformers' Qwen2, Qwen3 and Llama under a mask built here row by row, shifted
as the public code does it: cat(logits[:1], logits[:-1]).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_engine, load_model
from drafter_service.models.families.adapter import FamilyDrafter
from drafter_service.models.port import BlockRequest
from foredraft.errors import WeightsError
from tests.support.families.public import (
    CASES,
    MASK,
    VOCAB,
    config_of,
    expected,
    write,
)


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
