"""Schedules, sharding, batches and losses, on toy sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from foredraft_align.loop.schedule import TimedWSD
from foredraft_align.loop.sharded import ShardedOptimizer, Trained, assign_owners
from training.corpus.distill_data import make_batch, pack_blocks
from training.embedded.distill import (
    DistillLoss,
    DistillRun,
    drafter_from_drafter,
    drafter_from_target,
)
from training.embedded.evaluate import (
    accepted_lengths,
    drafts_everywhere,
    repetition_rate,
    walk_rounds,
)
from training.embedded.generate import Continuations, Decoder, continue_prompts, gumbel
from training.embedded.ranks import load_rank, save_rank
from training.embedded.target_model import (
    TargetModel,
    TargetShape,
    export_target,
    grown,
    load_target,
)
from verifier_service.models.checkpoint import load_config

SHAPE = TargetShape(vocab=64, hidden=32, layers=3, heads=2, intermediate=48, max_positions=128)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A random toy target, exported."""
    export_target(TargetModel(SHAPE, seed=1), tmp_path / "target")
    return tmp_path / "target"


def toy_run(folder: Path) -> DistillRun:
    """Distillation settings without compilation."""
    return DistillRun(folder, folder, folder, folder, source_layers=(0, 1), compile=False)


def test_schedule_warms_up_and_decays_to_the_floor() -> None:
    schedule = TimedWSD(peak=1.0, seconds=100.0, warmup=0.1, decay=0.4, floor=0.01)
    assert schedule.rate(5) == pytest.approx(0.5)
    assert schedule.rate(30) == 1.0 and not schedule.decaying(59)
    assert schedule.rate(80) == pytest.approx(0.505) and schedule.decaying(61)
    assert schedule.rate(1000) == pytest.approx(0.01)


def test_owners_cover_every_parameter_once() -> None:
    model = TargetModel(SHAPE, seed=0)
    trained = [Trained(p, muon=p.ndim == 2) for p in model.parameters()]
    shares = assign_owners(trained, 2)
    assert sorted(id(t.parameter) for s in shares for t in s) == sorted(map(id, model.parameters()))
    works = [sum(t.work for t in share) for share in shares]
    assert max(works) < 1.5 * min(works)


def test_optimizer_learns_and_checkpoint_restores(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    trained = [Trained(p, muon=p.ndim == 2) for p in model.parameters()]
    optimizer = ShardedOptimizer(trained, 0.05, 0.0, distributed=False)
    x, y = torch.randn(32, 4), torch.randn(32, 4)
    losses = []
    for _ in range(30):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step(0.05)
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    save_rank(tmp_path, 0, model, optimizer, 30, 1.5, [3])
    kept = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.zero_()
    assert load_rank(tmp_path, 0, model, optimizer, [0]) == (30, 1.5, [3])
    torch.testing.assert_close(model.weight.detach(), kept)


def test_export_equals_transformers(exported: Path) -> None:
    theirs = LlamaForCausalLM.from_pretrained(
        exported, config=load_config(exported), dtype=torch.float32
    ).eval()
    ours = load_target(exported)
    tokens = torch.randint(0, 64, (2, 40))
    with torch.inference_mode():
        logits = F.linear(ours.hidden(tokens), ours.embedding.weight)
        torch.testing.assert_close(logits, theirs(tokens).logits, atol=1e-5, rtol=1e-5)


def test_growing_keeps_the_function_and_lets_the_new_layers_learn(exported: Path) -> None:
    small = load_target(exported)
    large = grown(small, 5)
    tokens, labels = torch.randint(0, 64, (2, 2, 20))
    loss = large(tokens, labels)
    torch.testing.assert_close(loss, small(tokens, labels), atol=1e-6, rtol=0)
    loss.backward()
    assert all(layer.down.weight.grad.abs().max() > 0 for layer in large.layers)
    with pytest.raises(ValueError, match="layers"):
        grown(large, 4)


def test_gumbel_noise_samples_the_distribution() -> None:
    noise = gumbel(torch.Generator().manual_seed(0), 20_000, 3)
    assert torch.isfinite(noise).all()
    probabilities = torch.tensor([0.7, 0.2, 0.1])
    counts = (probabilities.log() + noise).argmax(-1).bincount(minlength=3) / 20_000
    torch.testing.assert_close(counts, probabilities, atol=0.015, rtol=0)


def test_decoder_follows_the_uncached_target(exported: Path) -> None:
    decoder, target = Decoder(exported, "fp32", 1024), load_target(exported)
    prompts = torch.randint(0, 64, (3, 9))
    greedy = continue_prompts(decoder, prompts, 12, torch.zeros(3), torch.zeros(0))
    tokens = torch.from_numpy(greedy.tokens.astype(np.int64))
    with torch.inference_mode():
        logits = F.linear(target.hidden(tokens), target.embedding.weight)
    assert torch.equal(logits[:, 8:-1].argmax(-1), tokens[:, 9:])
    noise = torch.randn(3, 12, 64)
    sampled = continue_prompts(decoder, prompts, 12, torch.full((3,), 0.5), noise)
    tokens = torch.from_numpy(sampled.tokens.astype(np.int64))
    with torch.inference_mode():
        logits = F.linear(target.hidden(tokens), target.embedding.weight)
    assert torch.equal((logits[:, 8:-1] / 0.5 + noise).argmax(-1), tokens[:, 9:])


def toy_continuations(rows: int, prompt: int, count: int) -> Continuations:
    """Random tokens with random candidate distributions."""
    random = np.random.default_rng(0)
    return Continuations(
        random.integers(0, 64, (rows, prompt + count)).astype(np.uint16),
        prompt,
        np.zeros(rows, np.float32),
        random.integers(0, 64, (rows, count, 16)).astype(np.uint16),
        np.log(random.random((rows, count, 16))).astype(np.float16),
    )


def test_blocks_fill_the_rows_exactly() -> None:
    anchor, slot, block = pack_blocks(np.random.default_rng(0), 10, 40, 50)
    assert len(anchor) == len(slot) == len(block) == 50
    for number in np.unique(block):
        inside = block == number
        assert len(set(anchor[inside])) == 1
        assert slot[inside].tolist() == list(range(inside.sum()))
    assert anchor.min() >= 10 and anchor.max() < 40


def test_batch_labels_and_visibility() -> None:
    data = toy_continuations(4, prompt=10, count=30)
    batch = make_batch(data, np.array([2, 0]), 48, 0.9, np.random.default_rng(1))
    for row, source in enumerate((2, 0)):
        for column in range(48):
            position = int(batch.positions[row, 40 + column])
            anchor = position - int(batch.slots[row, 40 + column])
            weight = float(batch.weight[row, column])
            assert int(batch.visible[row, 0, column, :40].sum()) == anchor
            if position < 40:
                assert int(batch.label[row, column]) == data.tokens[source, position]
                assert int(batch.previous[row, column]) == data.tokens[source, position - 1]
                assert weight == pytest.approx(0.9 ** (position - anchor), rel=1e-4)
            else:
                assert weight == 0


@pytest.mark.parametrize("layers", [2, 3])
def test_training_pass_and_evaluation_pass_agree(
    exported: Path, tmp_path: Path, layers: int
) -> None:
    """The packed mask of training means the same as drafting at one anchor."""
    target = load_target(exported)
    model = drafter_from_target(target, (0, 1), edge_rank=8, seed=0)
    if layers > 2:
        model.save(tmp_path)
        model = drafter_from_drafter(tmp_path, layers, target)
    data = toy_continuations(1, prompt=10, count=30)
    batch = make_batch(data, np.array([0]), 48, 0.9, np.random.default_rng(1))
    tokens = torch.from_numpy(data.tokens[0].astype(np.int64))
    seen: list[torch.Tensor] = []
    original = model.base_logits
    model.base_logits = lambda hidden: seen.append(hidden.detach()) or original(hidden)
    loss, _ = DistillLoss(model, toy_run(exported))(batch)
    loss.backward()
    size = int((batch.slots[0, 40:].diff() == 1).long().cumprod(0).sum()) + 1
    expected = drafts_everywhere(model, tokens, 10, size)[int(batch.positions[0, 40]) - 10]
    torch.testing.assert_close(seen[0][:size], expected, atol=1e-5, rtol=1e-5)
    assert model.embedding.weight.grad is None
    assert model.edge_next.weight.grad is not None


def test_rounds_skip_the_correction() -> None:
    tokens = torch.tensor([9, 1, 2, 3, 4, 5])
    path = torch.tensor([[1, 2], [2, 9], [9, 9], [4, 5], [0, 0]])
    accepted = accepted_lengths(path, tokens, 1)
    assert accepted.tolist() == [2, 1, 0, 2]
    assert walk_rounds(accepted) == [2, 2]
    assert repetition_rate(np.array([[1, 2, 3, 4, 1, 2, 3, 4]])) == pytest.approx(0.2)
