"""Training: the pass over a batch, what is learnt, and the same weights after an interruption."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from deployments.config import model_path
from drafter_service.models.embedded.block_causal import BlockCausalDLM
from foredraft.errors import ConfigError, WeightsError
from foredraft_align.curves import draw_curves
from foredraft_align.data.store import Store
from foredraft_align.drafter.block_causal import BlockCausalStudent, hidden_of_slots
from foredraft_align.drafter.start import (
    drafter_config,
    drafter_from_drafter,
    drafter_from_target,
    layers_to_read,
)
from foredraft_align.evaluate import tokens_per_round
from foredraft_align.loop.batches import Batches, make_batch, parts
from foredraft_align.loop.cross_entropy import mixed_cross_entropy
from foredraft_align.loop.muon import orthogonalised
from foredraft_align.loop.objectives import Decaying, Deer, Noise, loss_of, wanted
from foredraft_align.loop.train import TrainPlan, train
from foredraft_align.progress import read_log
from tests.support.align.shortlisted import CONFIG, TOKENS_ALONE, network
from tests.support.align.texts import counting
from tests.support.checkpoints import write_target

HIDDEN = 64


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"), "llama").folder


def store_of(folder, count=24, length=16, states=0):
    texts, bits = counting(count, length, states)
    folder.mkdir(parents=True, exist_ok=True)
    texts.save(folder / "0.safetensors", bits)
    return Store(folder)


def made(target, layer_ids=(), listed=128):
    config = replace(drafter_config(target, 1, 4, 0, layer_ids), shortlist_size=listed)
    return partial(BlockCausalStudent.from_target, config, target, tuple(range(listed)), 0)


def plan_of(folder, **changes):
    plan = TrainPlan(
        output=folder / "drafter",
        texts=folder / "texts",
        train=tuple(range(20)),
        held_out=tuple(range(20, 24)),
        steps=6,
        batch=4,
        micro_batch=2,
        rows=16,
        block_sizes=(2, 4),
        block_shares=(0.5, 0.5),
        checkpoint_steps=2,
        evaluate_steps=3,
    )
    return replace(plan, **changes)


@pytest.mark.parametrize("config", [CONFIG, TOKENS_ALONE])
def test_the_pass_is_the_drafters_own(tmp_path, config):
    """As forward_rows with one block: what is served (test_shortlist.py) is what is trained."""
    built = network(config)
    width = len(config.target_layer_ids) * config.hidden_size
    store = store_of(tmp_path, length=16, states=width)
    text = store.text(0)
    batch = make_batch([text, store.text(1)], 4, [np.array([6, 11, 15]), np.array([5, 5, 9])])
    hidden = hidden_of_slots(built, batch).view(2, 3, 4, -1)
    for block, n in enumerate((6, 11, 15)):
        read = None
        if width:
            read = torch.zeros(n + 4, config.hidden_size)
            read[1:n] = built.fused(batch.states[0, : n - 1])

        def attend(_, q, k, v, n=n):
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
            see = torch.ones(n + 4, n + 4, dtype=torch.bool)
            see[:n] = see[:n].tril()
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, see).transpose(0, 1)

        alone = built.forward_rows(
            torch.tensor([*text.tokens[:n].tolist(), 0, 0, 0, 0]),
            torch.arange(n + 4),
            torch.tensor([-1] * n + [0, 1, 2, 3]),
            attend,
            read,
            torch.full((n + 4,), n - 1),
        )[n:]
        torch.testing.assert_close(hidden[0, block], alone, atol=1e-4, rtol=1e-4)


def test_labels_are_the_texts_and_end_with_it(tmp_path):
    store = store_of(tmp_path, length=10)
    text = store.text(0)
    batch = make_batch([text], 4, [np.array([4, 8])])
    assert batch.labels[0, 0].tolist() == text.tokens[4:8].tolist()
    assert batch.previous[0, 0].tolist() == text.tokens[3:7].tolist()
    assert batch.inside[0].tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.top_ids[0, 0, :, 0].tolist() == text.tokens[4:8].tolist()


def test_batches_pass_over_all_texts_and_depend_on_the_step_alone(tmp_path):
    store = store_of(tmp_path)
    batches = Batches(store, range(24), 4, 16, seed=3)
    seen = [batches._of_step(step).tolist() for step in range(12)]
    assert sorted(i for group in seen[:6] for i in group) == list(range(24))
    assert seen[:6] != seen[6:]
    again = Batches(store, range(24), 4, 16, seed=3)
    assert torch.equal(again.draw(7, 1, 2, 4).anchors, batches.draw(7, 1, 2, 4).anchors)
    assert len(batches.draw(7, 0, 2, 4).tokens) == 2
    split = list(parts(batches.draw(7, 0, 1, 4), 3))
    assert [len(part.labels) for part in split] == [3, 1]


def test_soft_labels_leave_out_what_is_not_scored(tmp_path, target):
    student = made(target)()
    text = store_of(tmp_path).text(0)
    text.top_ids[4, :3] = (5, 300, 7)
    text.top_log_probs[4, :3] = np.log([0.5, 0.3, 0.2])
    text.top_log_probs[4, 3:] = -30
    text.tokens[5] = 300
    batch = make_batch([text], 2, [np.array([4])])
    every = Noise(torch.zeros(1, 1, 2, dtype=torch.bool), torch.ones(1, 1, 2))
    rows, shares, _ = wanted(student, batch, every, 0.5)
    assert rows[0, [0, 2]].tolist() == [5, 7]
    assert shares[0, :3].tolist() == pytest.approx([0.5 * 5 / 7, 0, 0.5 * 2 / 7], abs=1e-3)
    assert shares[1, -1] == 0


def test_cross_entropy_and_its_gradients_are_torchs():
    torch.manual_seed(0)
    # More rows than are worked on at once, and one probability in two places.
    base, edge = (torch.randn(150, 30, requires_grad=True) for _ in range(2))
    rows = torch.cat((torch.arange(30), torch.tensor([3]))).expand(150, 31)
    shares = torch.rand(150, 31) / 31
    weight = torch.rand(150)
    labels = torch.zeros(150, 30).scatter_add_(1, rows, shares)

    def of_torch(logits):
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none") @ weight

    expected = 3 * (0.3 * of_torch(base) + 0.7 * of_torch(base + edge))
    gradients = torch.autograd.grad(expected, (base, edge))
    found = 3 * mixed_cross_entropy(base, edge, rows, shares, weight, 0.3)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, (base, edge)), gradients)


def test_early_slots_weigh_most(tmp_path, target):
    student = made(target)()
    batch = make_batch([store_of(tmp_path).text(0)], 4, [np.array([4, 9])])
    objective = Decaying(gamma=0.1)
    noise = objective.noise((1, 2, 4), 0.0, np.random.default_rng(0))
    assert not noise.filled.any()
    hidden = student.hidden_of_slots(batch, noise.filled).detach().requires_grad_()
    loss_of(student, batch, noise, hidden, objective)[0].backward()
    size = hidden.grad.view(2, 4, -1).norm(dim=2).mean(0)
    assert (size[:-1] > 3 * size[1:]).all()


def test_deers_first_stage_weighs_masked_slots_by_their_share():
    filled, weight = Deer().noise((50, 40, 12), 0.0, np.random.default_rng(0))
    assert (weight[filled] == 0).all() and (weight[~filled] >= 1).all()
    assert (~filled).any(-1).all()
    # All masked slots of a block have one t; over all of them 1/t makes up for it (Eq. 1).
    assert (weight.amax(-1, keepdim=True) * ~filled == weight).all()
    assert weight.mean() == pytest.approx(1.04, abs=0.05)
    assert filled.float().mean() == pytest.approx(0.475, abs=0.03)


def test_deers_second_stage_weighs_what_follows_the_prefix_most():
    shape = (50, 40, 12)
    first = Deer(refine_from=0.5).noise(shape, 0.4, np.random.default_rng(0))
    filled, weight = Deer(alpha=1.5, refine_from=0.5).noise(shape, 0.6, np.random.default_rng(0))
    drawn = weight > 0
    # The same t and masks as before, of the first R slots, R ~ U(1, 12); masks follow them.
    assert (drawn <= (first.weight > 0)).all() and not (filled & drawn).any()
    share = drawn.sum((0, 1)) / (first.weight > 0).sum((0, 1))
    assert share.tolist() == pytest.approx([(12 - j) / 12 for j in range(12)], abs=0.05)
    relative = (weight / first.weight)[drawn[:, :, :2].all(-1)][:, :2]
    assert (relative[:, 0] / relative[:, 1]).tolist() == pytest.approx([1.5] * len(relative))


def test_filled_slots_show_their_tokens_and_count_nothing(tmp_path, target):
    student = made(target)()
    batch = make_batch([store_of(tmp_path).text(0)], 4, [np.array([4, 9])])
    filled = torch.zeros(1, 2, 4, dtype=torch.bool)
    filled[0, 0, 1] = True
    shown = student.hidden_of_slots(batch, filled).view(2, 4, -1)
    masked = student.hidden_of_slots(batch).view(2, 4, -1)
    # The block sees it, the other block does not.
    assert not torch.allclose(shown[0, 0], masked[0, 0])
    torch.testing.assert_close(shown[1], masked[1])
    hidden = shown.flatten(0, 1).detach().requires_grad_()
    noise = Noise(filled, (~filled).float())
    loss_of(student, batch, noise, hidden, Deer())[0].backward()
    assert (hidden.grad.norm(dim=1) == 0).tolist() == filled.flatten().tolist()


def test_an_update_is_orthogonal():
    torch.manual_seed(0)
    for shape in ((20, 50), (50, 20)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
        assert 0.6 < values.min() <= values.max() < 1.3


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Decaying(), Deer()])
def test_texts_that_count_are_learnt(tmp_path, target, objective):
    store_of(tmp_path / "texts")
    plan = plan_of(tmp_path, steps=60, lr=1e-2, evaluate_steps=60, objective=objective)
    train(plan, made(target), 0, 1, lambda _: None)
    steps = read_log(plan.output / "run" / "log.jsonl")
    assert [each.step for each in steps] == list(range(1, 61))
    assert steps[-1].loss < 0.6 * steps[0].loss
    assert steps[-1].held_out > 0.5
    built = BlockCausalStudent(BlockCausalDLM.load(plan.output, torch.float32, target))
    held_out = [Store(plan.texts).text(i) for i in plan.held_out]
    # In bytes as in fp32.
    found = tokens_per_round(built, held_out, 4)
    assert found.mat == pytest.approx(steps[-1].held_out, abs=0.5)
    assert found.by_position[0] > 0.4
    draw_curves(plan.output / "run" / "log.jsonl", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"


class Killed(Exception):
    """Stands for a kill between two steps."""


@pytest.mark.parametrize("last", [3, 4])
@pytest.mark.parametrize("layer_ids", [(), (0,)])
def test_a_killed_run_goes_on_to_the_same_weights(tmp_path, target, last, layer_ids):
    found = []
    for name in ("whole", "killed"):
        store_of(tmp_path / name / "texts", states=HIDDEN * len(layer_ids))
        plan = plan_of(tmp_path / name)

        def killed(progress, name=name):
            if name == "killed" and progress.step == last:
                raise Killed

        try:
            train(plan, made(target, layer_ids), 0, 1, killed)
        except Killed:
            train(plan, made(target, layer_ids), 0, 1, lambda _: None)
        found.append((plan.output / "model.safetensors").read_bytes())
        steps = [each.step for each in read_log(plan.output / "run" / "log.jsonl")]
        assert steps == [1, 2, 3, 4, 5, 6]
    assert found[0] == found[1]


def test_a_checkpoint_of_other_workers_is_refused(tmp_path, target):
    store_of(tmp_path / "texts")
    train(plan_of(tmp_path, steps=2), made(target), 0, 1, lambda _: None)
    shared = tmp_path / "drafter" / "run" / "step-2" / "shared.pt"
    torch.save(torch.load(shared, weights_only=True) | {"world": 2}, shared)
    with pytest.raises(ValueError, match="of 2 workers, not 1"):
        train(plan_of(tmp_path, steps=4), made(target), 0, 1, lambda _: None)


def test_a_drafter_begins_as_its_target(tmp_path, target):
    model = made(target)().model
    stored = load_file(target / "model.safetensors")
    layer = model.layers[0]
    assert torch.equal(layer.down.weight, stored["model.layers.0.mlp.down_proj.weight"])
    q, k, _ = layer.qkv.weight.view(3, 2, 32, HIDDEN)
    assert torch.equal(q.flatten(0, 1), stored["model.layers.0.self_attn.q_proj.weight"])
    # Both queries' heads share one of keys.
    assert torch.equal(k[0], k[1])
    assert torch.equal(k[0], stored["model.layers.0.self_attn.k_proj.weight"])
    model.save(tmp_path)
    more = drafter_from_drafter(tmp_path, target, 2)
    assert len(more.layers) == 2 and not more.layers[1].down.weight.any()


def test_a_drafter_begins_as_a_target_in_bytes():
    """The embedded target: int8 rows, each with its scale."""
    folder = Path(model_path("models/embedded/target"))
    config = replace(drafter_config(folder, 2, 4, 0, ()), shortlist_size=64)
    model = drafter_from_target(config, folder, tuple(range(64)), 0)
    with safe_open(folder / "model.safetensors", "pt") as stored:
        name = "model.layers.19.mlp.down_proj.weight"
        expected = stored.get_tensor(name).float() * stored.get_tensor(f"{name}_scale").float()
    assert torch.equal(model.layers[1].down.weight, expected)
    assert expected.abs().max() < 2


def test_a_target_without_an_end_is_refused(target, tmp_path):
    (tmp_path / "config.json").write_text((target / "config.json").read_text().replace("eos", "x"))
    with pytest.raises(WeightsError, match="name no EOS"):
        drafter_config(tmp_path, 1, 4, 0, ())


def test_layers_to_read_are_not_the_last():
    assert layers_to_read(30) == (1, 10, 19, 28)
    assert layers_to_read(2) == (0,)


def test_no_texts_are_an_error(tmp_path):
    with pytest.raises(ConfigError, match="let the target write some"):
        Store(tmp_path)
