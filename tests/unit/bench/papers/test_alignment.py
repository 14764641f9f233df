"""DEER's ablations: each variant is trained on the same texts, and reports its figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.papers import alignment
from bench.papers.alignment import Setup, Variant, train_variants
from bench.papers.experiments.deer_alignment import drift
from foredraft_align.data.store import Store
from foredraft_align.loop.objectives import Decaying, Deer
from tests.support.checkpoints import write_target


def test_variants_are_trained_on_the_same_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "_apart", lambda task: task())
    target = write_target(tmp_path / "target", "llama").folder
    setup = Setup(target, tmp_path / "setup", tokens=24, steps=2, rows=8)
    prompts = [f"the {n}" for n in range(8)]
    variants = {"I": Variant(Deer(refine_from=1.0), 4), "own": Variant(Decaying(), 8)}
    found = train_variants(setup, prompts, ["and so", "or"], variants)
    assert found.keys() == variants.keys()
    for outcome in found.values():
        assert len(outcome.losses) == 2 and len(outcome.mats) == 2
        assert all(0 <= mat <= 8 for mat in outcome.mats)
    held_out = Store(setup.folder / "held_out")
    assert [held_out.text(index).temperature for index in range(2)] == [0, 0]
    assert len(Store(setup.folder / "train")) == 8
    # A variant does not depend on those before it.
    other = replace(setup, folder=tmp_path / "other")
    assert (
        train_variants(other, prompts, ["and so", "or"], {"own": variants["own"]})["own"]
        == found["own"]
    )


def test_a_rising_loss_is_a_drift_above_one() -> None:
    assert drift([2.0] * 5 + [1.0] * 5) == 0.5
    assert drift([1.0]) == 1
