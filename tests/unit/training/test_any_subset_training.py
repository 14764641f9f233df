"""Training of the any-subset model on toy sizes: it learns, and goes on where it was stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from foredraft.layout import Layout
from training.any_subset.layouts import MaskRates, Order
from training.any_subset.model import load_any_subset
from training.any_subset.train import AnySubsetRun, train_any_subset
from training.cli import app
from training.corpus.tokenizer import MASK_ID
from training.embedded.target_model import TargetShape
from verifier_service.config import VerifierConfig
from verifier_service.load import load_target
from verifier_service.models.port import Segment, alloc
from verifier_service.targets.streams import TwoStreams

SHAPE = TargetShape(vocab=16, hidden=32, layers=1, heads=2, intermediate=48, max_positions=16)


class Killed(Exception):
    """The process ended in the middle of a run."""


class Clock:
    """One second a step; the process ends when `until` is reached."""

    def __init__(self, until: float = float("inf")) -> None:
        self.until = until

    def __call__(
        self, elapsed: float, previous: float, *, distributed: bool
    ) -> tuple[float, float]:
        if elapsed + 1 > self.until:
            raise Killed
        return elapsed + 1, previous


@pytest.fixture
def run(tmp_path: Path) -> AnySubsetRun:
    """60 steps on texts that count upwards from a random number."""
    for name in ("core", "rest", "heldout"):
        starts = np.random.default_rng(0).integers(0, 16, 300)
        tokens = (starts[:, None] + np.arange(17)) % 16
        np.save(tmp_path / f"{name}.npy", tokens.astype(np.uint16).ravel())
    return AnySubsetRun(
        data=tmp_path,
        output=tmp_path / "out",
        checkpoint=tmp_path / "checkpoint",
        shape=SHAPE,
        start=None,
        minutes=1.0,
        lr=1e-2,
        batch=8,
        length=16,
        rates=MaskRates(0.5, 0.9),
        checkpoint_steps=8,
    )


def lines(run: AnySubsetRun) -> list[dict[str, float]]:
    return list(map(json.loads, (run.checkpoint / "log.jsonl").read_text().splitlines()))


def weights(run: AnySubsetRun) -> dict[str, torch.Tensor]:
    return torch.load(run.checkpoint / "rank0.pt", weights_only=True)["model"]


def test_the_loss_falls_and_the_masking_rises(run: AnySubsetRun) -> None:
    train_any_subset(replace(run, holes=0.0), clock=Clock())
    *steps, last = lines(run)
    assert len(steps) == 60
    assert np.mean([step["nats"] for step in steps[-5:]]) < 0.75 * steps[0]["nats"]
    assert steps[0]["masked"] < 0.25 and np.mean([s["masked"] for s in steps[10:]]) > 0.6
    assert max(nats for name, nats in last.items() if "held_out" in name) < 0.75 * np.log(16)
    assert (run.output / "model.safetensors").is_file()


def test_a_run_goes_on_bit_for_bit_where_it_was_killed(run: AnySubsetRun, tmp_path: Path) -> None:
    run = replace(run, minutes=0.35)
    train_any_subset(run, clock=Clock())
    killed = replace(run, checkpoint=tmp_path / "killed", output=tmp_path / "again")
    with pytest.raises(Killed):
        train_any_subset(killed, clock=Clock(until=11))
    train_any_subset(killed, clock=Clock())
    for name, value in weights(run).items():
        assert torch.equal(value, weights(killed)[name]), name
    assert lines(run)[8:] == lines(killed)[-len(lines(run)[8:]) :]
    stored = [folder / "model.safetensors" for folder in (run.output, killed.output)]
    assert stored[0].read_bytes() == stored[1].read_bytes()


def test_a_run_starts_from_what_another_one_exported(run: AnySubsetRun, tmp_path: Path) -> None:
    run = replace(run, minutes=0.1)
    train_any_subset(run, clock=Clock())
    folders = {"checkpoint": tmp_path / "second", "output": tmp_path / "longer"}
    train_any_subset(replace(run, start=run.output, length=12, **folders), clock=Clock())
    config = json.loads((tmp_path / "longer" / "config.json").read_text())
    assert config["max_position_embeddings"] == 12


def test_the_order_of_masked_tokens_is_an_option(run: AnySubsetRun) -> None:
    train_any_subset(replace(run, minutes=0.05, order=Order.ANY), clock=Clock())
    assert len(lines(run)) == 4


@pytest.mark.slow
def test_the_command_trains_an_ablation(run: AnySubsetRun, tmp_path: Path) -> None:
    options = "--from-scratch --order any --max-given 0.85 --no-warmup --minutes 0.001 --ranks 1"
    sizes = "--layers 1 --length 16 --batch 2 --micro-batch 1"
    folders = f"--work {tmp_path} --out {tmp_path / 'ablation'}"
    words = f"any_subset {options} {sizes} {folders}".split()
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "ablation" / "model.safetensors").is_file()
    refused = CliRunner().invoke(app, ["any_subset", "--order", "random"])
    assert refused.exit_code == 2 and "--order" in refused.output


def test_the_verifier_reads_what_is_trained(run: AnySubsetRun) -> None:
    """Its query rows have the logits of the trained ones."""
    train_any_subset(replace(run, minutes=0.1), clock=Clock())
    target = load_target(VerifierConfig(model=run.output, dtype="fp32"))
    assert target.info.any_subset and target.info.max_len == 16
    layout = Layout(16, (0, 5, 6, 12))
    trained, sigma = load_any_subset(run.output), layout.positions
    tokens = torch.randint(2, 16, (1, 16))
    content = tokens[0, list(sigma)].tolist()
    order = torch.from_numpy(np.argsort(sigma))[None]
    with torch.inference_mode():
        expected = trained.logits(tokens, order, torch.tensor([4]))[0, list(sigma)]
    rows = TwoStreams(layout, MASK_ID).rows(Segment(alloc(target, 32), 0, content[:15], 9), 8, 0)
    np.testing.assert_allclose(target.forward([rows]), expected[7:], atol=2e-2)
