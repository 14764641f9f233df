"""Drafters in SDAR's format: what is trained is what the drafter service loads and serves."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from drafter_service.models.families.adapter import load_family
from drafter_service.models.port import BlockRequest
from foredraft.errors import WeightsError
from foredraft_align.data.store import Store
from foredraft_align.drafter.sdar_start import decoder_sizes, sdar_from_drafter, sdar_from_target
from foredraft_align.evaluate import tokens_per_round
from foredraft_align.kinds import KINDS, Shape
from foredraft_align.loop.batches import make_batch
from foredraft_align.loop.cross_entropy import cross_entropy
from foredraft_align.loop.train import Progress, train
from tests.support.align.texts import counting
from tests.support.checkpoints import VOCABULARY, write_target
from tests.unit.align.test_training import plan_of, store_of

BLOCK = 4


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def target(request, tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"), request.param).folder


def served(folder):
    return load_family(
        folder,
        family=None,
        mask_token_id=None,
        dtype=torch.float32,
        device="cpu",
        num_candidates=8,
        max_mask_slots=8,
        max_sessions=2,
        max_len=None,
        cache_tokens=256,
        refresh=8,
    )


def rounded_to_bf16(student):
    """A student whose weights are as they are stored."""
    table = student.network.embed_tokens.weight
    with torch.no_grad():
        for tensor in (*dict(student.named_parameters()).values(), table, student._head):
            tensor.copy_(tensor.bfloat16())
    return student


@pytest.mark.parametrize("anchors", [(8, 13), (9, 10)])
def test_the_pass_is_the_served_one(tmp_path, target, anchors):
    """At a block's beginning and within one, with drafts that end in the next block."""
    student = rounded_to_bf16(sdar_from_target(target, 2, BLOCK, 0))
    student.save(tmp_path / "drafter")
    text = store_of(tmp_path / "texts", length=20).text(0)
    batch = make_batch([text], 6, [np.array(anchors)])
    hidden = student.hidden_of_slots(batch).view(2, 6, -1)
    drafter = served(tmp_path / "drafter")
    for place, anchor in enumerate(anchors):
        tokens = [int(token) for token in text.tokens[:anchor]]
        logits = drafter.logits([BlockRequest(place, 0, tuple(tokens), 6)])
        mine = torch.nn.functional.linear(hidden[place], student._head)
        torch.testing.assert_close(mine, logits[:, :VOCABULARY], atol=1e-4, rtol=1e-4)


def test_filled_slots_show_their_tokens(tmp_path, target):
    student = sdar_from_target(target, 1, BLOCK, 0)
    batch = make_batch([store_of(tmp_path, length=20).text(0)], 4, [np.array([5, 9])])
    filled = torch.zeros(1, 2, 4, dtype=torch.bool)
    filled[0, 0, 1] = True
    shown = student.hidden_of_slots(batch, filled).view(2, 4, -1)
    masked = student.hidden_of_slots(batch).view(2, 4, -1)
    assert not torch.allclose(shown[0, 0], masked[0, 0])
    torch.testing.assert_close(shown[1], masked[1])


def test_a_slot_sees_nothing_behind_its_own_block_and_no_other_draft(tmp_path, target):
    student = sdar_from_target(target, 2, BLOCK, 0)
    store = store_of(tmp_path, length=20)
    text = store.text(0)
    batch = make_batch([text], 4, [np.array([9, 14])])
    hidden = student.hidden_of_slots(batch).view(2, 4, -1)
    changed = batch.tokens.clone()
    changed[0, 9:] = 7
    again = student.hidden_of_slots(replace(batch, tokens=changed)).view(2, 4, -1)
    torch.testing.assert_close(again[0], hidden[0])
    alone = student.hidden_of_slots(make_batch([text], 4, [np.array([9])])).view(4, -1)
    torch.testing.assert_close(alone, hidden[0])


def test_the_files_are_those_of_the_format(tmp_path, target):
    sdar_from_target(target, 2, BLOCK, 0).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "sdar" and config["block_size"] == BLOCK
    assert config["mask_token_id"] == VOCABULARY == config["vocab_size"] - 1
    assert (tmp_path / "tokenizer.json").read_bytes() == (target / "tokenizer.json").read_bytes()
    # Its weights are Qwen3's by name and shape: transformers loads all of them.
    as_qwen3 = config | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(as_qwen3))
    found: dict[str, object]
    _, found = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)  # type: ignore[misc]
    assert not any(found[each] for each in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_a_drafter_goes_on_with_a_layer_more_that_changes_nothing(tmp_path, target):
    sdar_from_target(target, 1, BLOCK, 0).save(tmp_path / "first")
    same, more = (sdar_from_drafter(tmp_path / "first", target, layers) for layers in (1, 2))
    assert len(more.network.layers) == 2
    batch = make_batch([store_of(tmp_path / "texts", length=20).text(0)], 4, [np.array([5, 9])])
    torch.testing.assert_close(more.hidden_of_slots(batch), same.hidden_of_slots(batch))


def test_another_format_is_no_start(tmp_path, target):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="no drafter in SDAR's format"):
        sdar_from_drafter(tmp_path, target, 1)


def test_a_target_with_other_positions_is_refused(tmp_path, target):
    raw = json.loads((target / "config.json").read_text())
    raw |= {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(WeightsError, match="llama3"):
        decoder_sizes(tmp_path)
    with pytest.raises(WeightsError, match="llama3"):
        KINDS["sdar"].check(Shape(tmp_path, 1, 4, 0, None, 0))


def test_cross_entropy_and_its_gradient_are_torchs():
    torch.manual_seed(0)
    logits = torch.randn(150, 30, requires_grad=True)
    rows = torch.arange(30).expand(150, 30)
    shares, weight = torch.rand(150, 30) / 30, torch.rand(150)
    expected = torch.nn.functional.cross_entropy(logits, shares, reduction="none") @ weight
    found = cross_entropy(logits, rows, shares, weight)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(2 * found, logits), torch.autograd.grad(2 * expected, logits)
    )


@pytest.mark.slow
def test_texts_that_count_are_learnt(tmp_path):
    target = write_target(tmp_path / "target", "llama").folder
    (tmp_path / "texts").mkdir()
    texts, states = counting(24, 16)
    texts.save(tmp_path / "texts" / "0.safetensors", states)
    plan = plan_of(tmp_path, steps=60, lr=1e-2, evaluate_steps=60)
    make = KINDS["sdar"].make(Shape(target, 1, BLOCK, 0, None, 0), ())
    steps: list[Progress] = []
    train(plan, make, 0, 1, steps.append)
    assert steps[-1].loss < 0.6 * steps[0].loss and steps[-1].held_out > 0.5
    built = sdar_from_drafter(plan.output, target, 1)
    held_out = [Store(plan.texts).text(index) for index in plan.held_out]
    assert tokens_per_round(built, held_out, 4).mat == pytest.approx(steps[-1].held_out, abs=0.5)
