"""The fully bidirectional drafter: how it begins, what it is trained on, its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from drafter_service.config import DrafterConfig
from drafter_service.load import load_model
from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from drafter_service.models.families.adapter import FamilyDrafter
from drafter_service.models.families.attending import Part, Rows, TextAttention
from drafter_service.models.port import BlockRequest
from training.corpus.tokenizer import MASK_ID
from training.embedded.bidirectional import begun, draw, loss, save

VOCAB = 64


def begun_small(folder: Path):
    torch.manual_seed(4)
    config = BlockCausalConfig(VOCAB, 32, 2, 48, edge_rank=4, max_position_embeddings=96)
    source = BlockCausalDLM(config)
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.normal_(0, 0.2)
    source.save(folder)
    return BlockCausalDLM.load(folder, torch.float32), begun(folder)


def test_it_begins_as_the_embedded_drafter(tmp_path: Path) -> None:
    source, model = begun_small(tmp_path / "drafter")
    text, at = torch.tensor([5, 9, 33, 7]), torch.arange(4)

    def attend(layer, q, k, v):
        part = Part(0, 4, torch.empty(2, 2, 2, 0, 16))
        return TextAttention([part], 0, torch.device("cpu"))(layer, q, k, v)

    wanted = source.forward_rows(text, at, torch.full((4,), -1), attend)
    found = model(Rows(text, at, torch.zeros(4)), attend)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_a_step_masks_the_end_of_texts_or_tokens_anywhere() -> None:
    data = np.arange(2, 5000) % 60 + 2
    for step in range(20):
        for infill in (False, True):
            batch = draw(data, np.random.default_rng(step), infill)
            masked = batch.inputs == MASK_ID
            assert torch.equal(masked, batch.weight > 0)
            assert torch.equal(batch.inputs[~masked], batch.tokens[~masked])
            assert not masked[:, 0].any()
            if not infill:
                assert not masked[:, :-8].any()


def test_it_learns_and_is_served_from_its_folder(tmp_path: Path) -> None:
    _, model = begun_small(tmp_path / "drafter")
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batch = draw(np.arange(2, 5000) % 60 + 2, np.random.default_rng(0), infill=False)
    found = []
    for _ in range(30):
        found.append(loss(model, batch))
        optimizer.zero_grad()
        found[-1].backward()
        optimizer.step()
    assert found[-1] < 0.9 * found[0]
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    save(model, tmp_path / "model", tmp_path / "tokenizer")
    drafter = load_model(DrafterConfig(model=tmp_path / "model", dtype="float32"))
    assert isinstance(drafter, FamilyDrafter)
    text = [*range(10, 40)]
    logits = drafter.logits([BlockRequest(0, 0, text, 3)])
    tokens = torch.tensor([*text, *[MASK_ID] * 3])
    attention = TextAttention([Part(0, 33, torch.empty(2, 2, 2, 0, 16))], 0, torch.device("cpu"))
    states = model.bfloat16().float()(Rows(tokens, torch.arange(33), torch.zeros(33)), attention)
    # Shift 1: the first slot is read at the text's last token.
    torch.testing.assert_close(logits, model.lm_head(states[29:32]).detach(), atol=1e-4, rtol=1e-4)
