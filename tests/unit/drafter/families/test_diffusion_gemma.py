"""DiffusionGemma: a tiny checkpoint against transformers' forward, one text at a time, uncached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter_service.config import DrafterConfig
from drafter_service.load import load_model
from drafter_service.models.families.diffusion_gemma import DiffusionGemmaDrafter
from drafter_service.models.port import BlockRequest
from foredraft.errors import WeightsError
from foredraft.noise.streams import uniform
from tests.support.families.own_formats import CANVAS, EOS, VOCAB, write_diffusion_gemma

# Longer and shorter than the window of the sliding layers, which is 6.
TEXTS = [[5, 9, 33, 7, 12, 50, 3, 9, 41, 17], [3], [8, 2, 61, 4]]


def load(folder: Path, **fields: Any) -> DiffusionGemmaDrafter:
    config = DrafterConfig(model=folder, dtype="float32", cache_tokens=256, candidates=8, **fields)
    drafter = load_model(config)
    assert isinstance(drafter, DiffusionGemmaDrafter)
    return drafter


def canvas_behind(text: list[int], filled: list[int]) -> torch.Tensor:
    """A whole canvas [1, CANVAS]: the tokens that are held, uniform noise elsewhere."""
    noise = [int(uniform(0, len(text) + j) * VOCAB) for j in range(CANVAS)]
    held = [*filled, *[-1] * (CANVAS - len(filled))]
    return torch.tensor([[n if t < 0 else t for n, t in zip(noise, held, strict=True)]])


@torch.no_grad()
def expected(model: Any, text: list[int], filled: list[int], before: Any = None) -> torch.Tensor:
    """The logits [slots, vocabulary], from one call as transformers documents it."""
    answer = model(
        input_ids=torch.tensor([text]),
        decoder_input_ids=canvas_behind(text, filled),
        self_conditioning_logits=before,
    )
    return answer.logits[0, : len(filled)]


def test_logits_are_those_of_transformers(tmp_path: Path) -> None:
    model = write_diffusion_gemma(tmp_path / "model")
    drafter = load(tmp_path / "model")
    blocks = [[-1] * 5, [-1] * CANVAS, [-1, 44, -1]]
    found = drafter.logits(
        [
            BlockRequest(slot, 0, text, len(filled), filled)
            for slot, (text, filled) in enumerate(zip(TEXTS, blocks, strict=True))
        ]
    )
    wanted = [expected(model, text, filled) for text, filled in zip(TEXTS, blocks, strict=True)]
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=1e-5)


def test_cached_prefixes_change_no_logits(tmp_path: Path) -> None:
    """Grown, cut back and fed in chunks, in slots that others wrote to before."""
    model = write_diffusion_gemma(tmp_path / "model")
    drafter = load(tmp_path / "model")
    long = [(7 * i) % VOCAB for i in range(30)]
    drafter.logits([BlockRequest(1, 0, long, 0), BlockRequest(0, 0, [3, 4], 2)])
    drafter.logits([BlockRequest(1, 30, [6, 7], 4), BlockRequest(3, 0, [5], 1)])
    one, two = [*long[:21], 9, 8, 2], [3, 4, 60, 61, 62, 63, 64, 65, 66]
    found = drafter.logits(
        [BlockRequest(1, 21, one[21:], 3, [-1] * 3), BlockRequest(0, 2, two[2:], 2, [-1] * 2)]
    )
    wanted = [expected(model, one, [-1] * 3), expected(model, two, [-1] * 2)]
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=1e-5)


def test_a_step_is_told_of_the_one_before(tmp_path: Path) -> None:
    model = write_diffusion_gemma(tmp_path / "model")
    drafter = load(tmp_path / "model")
    text, other = TEXTS[0], TEXTS[2]
    drafter.logits([BlockRequest(0, 0, text, 4)])
    filled = [-1, 23, -1, -1]
    found = drafter.logits(
        [BlockRequest(0, len(text) - 1, text[-1:], 4, filled), BlockRequest(2, 0, other, 4)]
    )
    with torch.no_grad():
        before = model(
            input_ids=torch.tensor([text]), decoder_input_ids=canvas_behind(text, [])
        ).logits
    wanted = [expected(model, text, filled, before), expected(model, other, [-1] * 4)]
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-5, rtol=1e-5)
    # Another block begins anew, and so does one of which nothing is settled.
    for begun in (filled[:3], []):
        again = drafter.logits([BlockRequest(0, len(text) - 1, text[-1:], 3, begun)])
        alone = expected(model, text, begun or [-1] * 3)
        torch.testing.assert_close(again, alone, atol=1e-5, rtol=1e-5)


def test_sessions_in_one_pass_score_as_alone(tmp_path: Path) -> None:
    write_diffusion_gemma(tmp_path / "model")
    together, alone = load(tmp_path / "model"), load(tmp_path / "model")
    requests = [BlockRequest(slot, 0, text, 2 + slot) for slot, text in enumerate(TEXTS)]
    for scores, request in zip(together.draft(requests), requests, strict=True):
        [single] = alone.draft([request])
        np.testing.assert_array_equal(scores.tokens, single.tokens)
        np.testing.assert_allclose(scores.log_q, single.log_q, atol=1e-5)
        assert all(EOS in row for row in single.tokens)


def test_what_it_declares(tmp_path: Path) -> None:
    write_diffusion_gemma(tmp_path / "model")
    capabilities = load(tmp_path / "model").capabilities
    assert capabilities.max_mask_slots == CANVAS
    assert (capabilities.prefix_kv, capabilities.eos) == ("exact", EOS)
    assert (capabilities.max_len, capabilities.cache_slots) == (64, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"canvas_length": None}, "canvas_length"),
        ({"canvas_length": "long"}, "canvas_length"),
        ({"text_config": {"eos_token_id": None}}, "text_config.eos_token_id"),
        ({"text_config": {"use_bidirectional_attention": "all"}}, "use_bidirectional_attention"),
        ({"text_config": {"num_hidden_layers": "many"}}, "num_hidden_layers"),
        ({"text_config": {"intermediate_size": 40}}, "mlp"),
        ({"text_config": {"moe_intermediate_size": 24}}, "experts"),
    ],
)
def test_what_cannot_be_used_is_said(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_diffusion_gemma(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    for field, value in change.items():
        config[field] = config[field] | value if isinstance(value, dict) else value
    file.write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=message):
        load(tmp_path / "model")


def test_missing_weights_are_named(tmp_path: Path) -> None:
    write_diffusion_gemma(tmp_path / "model")
    name = "model.decoder.norm.weight"
    for file in (tmp_path / "model").glob("*.safetensors"):
        weights = load_file(file)
        if weights.pop(name, None) is not None:
            save_file(weights, file, {"format": "pt"})
    with pytest.raises(WeightsError, match=f"missing weights .*{name}"):
        load(tmp_path / "model")
