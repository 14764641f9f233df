"""The block-diffusion target: what it sees, what it learns, and how its training goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from denoiser_service.core.decode import GraphDrafting, speculative, vanilla
from denoiser_service.core.graph_file import FILE_NAME, from_json
from denoiser_service.core.next import Rule
from denoiser_service.core.text import Text
from foredraft.decoding.block_state import MASKED
from foredraft.denoising import Dynamic, Static
from foredraft_align.loop.log import StepLog
from training.block_dlm.denoiser import ServedDenoiser
from training.block_dlm.model import BlockAttention, BlockDLM, export, load, visible
from training.block_dlm.noising import LEAST, Texts, noise
from training.block_dlm.train import BlockDlmRun, train
from training.cli import app
from training.corpus.tokenizer import MASK_ID
from training.embedded.start import started
from training.embedded.target_model import (
    TargetModel,
    TargetShape,
    export_target,
    grown,
    masked_attention,
)

SHAPE = TargetShape(vocab=64, hidden=32, layers=2, heads=2, intermediate=48, max_positions=128)
L = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy target grown from 2 to 5 layers, and a corpus that repeats itself."""
    folder = tmp_path_factory.mktemp("work")
    export_target(grown(TargetModel(SHAPE, seed=1), 5), folder / "target")
    for name in ("core", "rest", "heldout"):
        np.save(folder / f"{name}.npy", np.tile(np.arange(10, 14, dtype=np.uint16), 200))
    return folder


def run(folder: Path, name: str, steps: int) -> BlockDlmRun:
    """A training of seconds."""
    return BlockDlmRun(
        data=folder,
        start=folder / "target",
        output=folder / name / "export",
        checkpoint=folder / name / "run",
        layers=2,
        block_length=L,
        length=16,
        steps=steps,
        batch=4,
        micro_batch=2,
        lr=0.01,
        checkpoint_steps=7,
        evaluate_steps=1000,
    )


def figures(folder: Path, name: str) -> list[dict[str, float]]:
    log = (folder / name / "run" / "log.jsonl").read_text()
    return [json.loads(line) for line in log.splitlines()]


def test_clean_rows_see_clean_blocks_and_noised_ones_earlier_clean_blocks_and_their_own() -> None:
    n, seen = 12, visible(12, L)
    for row in range(n):
        for key in range(n):
            assert seen[row, key] == (key // L <= row // L)
            assert not seen[row, n + key], "clean rows never see noised ones"
            assert seen[n + row, key] == (key // L < row // L)
            assert seen[n + row, n + key] == (key // L == row // L)


def test_chunks_attend_as_the_whole_mask_does() -> None:
    n = 160
    q, k, v = torch.randn(3, 2, 1, 2 * n, 8, generator=torch.Generator().manual_seed(0))
    hidden = torch.where(visible(n, L), 0.0, -1e9)
    attention = BlockAttention(n, L)
    assert len(attention.spans) == 2
    torch.testing.assert_close(attention(q, k, v), masked_attention(q, k, v, hidden))
    with pytest.raises(ValueError, match="block length"):
        BlockAttention(10, L)


def test_a_change_is_seen_where_the_mask_says_so() -> None:
    model = BlockDLM(TargetModel(SHAPE, seed=3), 12, L)
    tokens = torch.arange(10, 22).repeat(2)[None]
    plain = model.network.hidden(tokens, model.attention, model.positions)[0]
    for changed in range(24):
        other = tokens.clone()
        other[0, changed] = 40
        now = model.network.hidden(other, model.attention, model.positions)[0]
        assert torch.equal((now != plain).any(-1), visible(12, L)[:, changed])


def test_masked_tokens_weigh_one_over_their_share_and_others_nothing() -> None:
    tokens = torch.randint(2, 64, (200, 64), generator=torch.Generator().manual_seed(0))
    batch = noise(tokens, L, np.random.default_rng(0))
    masked = batch.noised == MASK_ID
    assert torch.equal(masked, batch.weight > 0)
    assert torch.equal(batch.noised[~masked], tokens[~masked])
    assert batch.weight[masked].min() >= 1 - 1e-6 and batch.weight.max() <= 1 / LEAST + 1e-4
    assert abs(float(batch.weight.mean()) - 1) < 0.05, "1/t makes up for masking a share of t"
    for block in batch.weight.view(-1, L):
        assert len(block[block > 0].unique()) <= 1, "one t for a block"


def test_a_network_starts_from_the_layers_before_the_target_was_grown(folder: Path) -> None:
    network, original = started(folder / "target", 2), TargetModel(SHAPE, seed=1)
    for ours, theirs in zip(network.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=2e-2)
    with pytest.raises(ValueError, match="layers"):
        started(folder / "target", 6)


def test_an_exported_network_is_read_back(folder: Path, tmp_path: Path) -> None:
    export(started(folder / "target", 2), tmp_path, L, MASK_ID)
    network, block_length, mask = load(tmp_path)
    assert (len(network.layers), block_length, mask) == (2, L, MASK_ID)
    with pytest.raises(ValueError, match="block_diffusion"):
        load(folder / "target")


def test_texts_are_a_function_of_the_step(folder: Path) -> None:
    first, second = Texts(folder, 16, 0), Texts(folder, 16, 0)
    assert not torch.equal(first.draw(4, 0.5, 0.3, 0), first.draw(4, 0.5, 0.3, 1))
    assert torch.equal(first.draw(4, 0.5, 0.3, 1), second.draw(4, 0.5, 0.3, 1))


def test_training_learns_and_goes_on_bit_by_bit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(run(folder, "whole", 40))
    losses = [each["loss"] for each in figures(folder, "whole")]
    assert len(losses) == 40 and np.mean(losses[-10:]) < 0.5 * losses[0]
    assert figures(folder, "whole")[-1]["held_out_loss"] < losses[0]

    class Killed(Exception):
        pass

    def add(log: StepLog, entry: Mapping[str, float]) -> None:
        if entry["step"] == 18:
            raise Killed
        added(log, entry)

    added, part = StepLog.add, run(folder, "parts", 40)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(StepLog, "add", add)
        train(part)
    assert len(figures(folder, "parts")) == 17
    train(part)
    assert [each["loss"] for each in figures(folder, "parts")] == losses
    assert same_weights(folder / "whole" / "export", folder / "parts" / "export")


def same_weights(one: Path, other: Path) -> bool:
    file = "model.safetensors"
    return (one / file).read_bytes() == (other / file).read_bytes()


def test_a_part_ends_with_a_checkpoint_and_an_export(folder: Path) -> None:
    part = replace(run(folder, "part", 0), minutes=60.0, part_minutes=1e-6)
    for steps in (1, 2):
        train(part)
        assert len(figures(folder, "part")) == steps
    assert load(part.output)[1] == L


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    export(started(folder / "target", 2), folder / "exported", L, MASK_ID)
    return folder / "exported"


@pytest.fixture(scope="module")
def denoiser(exported: Path) -> ServedDenoiser:
    return ServedDenoiser(exported, "fp32")


def test_a_state_is_served_as_in_training(exported: Path, denoiser: ServedDenoiser) -> None:
    """The packed mask of training means the same as one block after its prefix."""
    model = BlockDLM(load(exported)[0], 12, L)
    clean = torch.arange(10, 22)
    states = [(MASKED, 11, MASKED, 13), (14, MASKED, MASKED, MASKED), (MASKED,) * L]
    noised = torch.tensor([MASK_ID if t == MASKED else t for state in states for t in state])
    both = torch.cat((clean, noised))[None]
    with torch.inference_mode():
        hidden = model.network.hidden(both, model.attention, model.positions)[0, 12:]
        logits = torch.nn.functional.linear(hidden, model.network.embedding.weight)
    for block, state in enumerate(states):
        (found,) = denoiser.evaluate(clean[: block * L].tolist(), [state])
        expected = logits[block * L : (block + 1) * L].numpy()
        allowed = np.arange(64) != MASK_ID
        np.testing.assert_allclose(found[:, allowed], expected[:, allowed], atol=1e-3)
        assert np.isneginf(found[:, MASK_ID]).all()
    for prefix in ([1, 2], [1] * 128):
        with pytest.raises(ValueError, match="prefix"):
            denoiser.evaluate(prefix, states)


def test_states_have_the_same_bits_alone_and_together(denoiser: ServedDenoiser) -> None:
    states = [(MASKED,) * L, (5, MASKED, MASKED, 7), (MASKED, 9, MASKED, MASKED)]
    together = denoiser.evaluate([3] * 8, states)
    for state, found in zip(states, together, strict=True):
        assert np.array_equal(denoiser.evaluate([3] * 8, [state])[0], found)


@pytest.mark.parametrize(
    "options", ["--static 1", "--threshold 0.05 --temperature 1.0 --corpus rest"]
)
def test_a_calibrated_graph_lies_beside_the_weights_and_changes_no_text(
    folder: Path, tmp_path: Path, options: str
) -> None:
    export(started(folder / "target", 2), tmp_path, L, MASK_ID)
    small = "--prompts 3 --prompt-tokens 10 --max-tokens 12 --lookahead 3 --size 4"
    answer = CliRunner().invoke(
        app, ["graph", str(tmp_path), "--work", str(folder), *options.split(), *small.split()]
    )
    assert answer.exit_code == 0, answer.output
    graph, calibration, _ = from_json((tmp_path / FILE_NAME).read_text())
    assert graph.nodes and calibration.block_length == L and calibration.prompts == 3
    model = ServedDenoiser(tmp_path)
    for seed in range(3):
        static = options.startswith("--static")
        rule = Rule(Static(1) if static else Dynamic(0.05), 0.0 if static else 1.0, seed)
        text = Text(tuple(range(20, 29)), 11)
        plain = vanilla(model, text, rule)
        drafted = speculative(model, text, rule, GraphDrafting(graph, rule, 3))
        assert [b.states for b in drafted.blocks] == [b.states for b in plain.blocks]
        assert drafted.calls <= drafted.steps == plain.calls


def test_the_command_trains_with_the_settings_asked_for(folder: Path, tmp_path: Path) -> None:
    options = "--steps 2 --ranks 1 --layers 2 --block-length 8 --length 16 --batch 2"
    where = f"--work {folder} --start {folder / 'target'} --out {tmp_path / 'model'}"
    answer = CliRunner().invoke(app, ["block_dlm", *options.split(), *where.split()])
    assert answer.exit_code == 0, answer.output
    assert load(tmp_path / "model")[1] == 8
    assert (folder / "block_dlm_8" / "run").is_dir()
