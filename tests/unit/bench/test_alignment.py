"""DEER's ablations: each lesson is taught on the same texts, and its figures are told."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.papers import alignment
from bench.papers.alignment import Lesson, School, teach
from bench.papers.claims import Verdict
from bench.papers.experiments.deer_alignment import _stable, drift
from foredraft_align.data.store import Store
from foredraft_align.loop.objectives import Decaying, Deer
from tests.support.checkpoints import write_target


def test_lessons_are_taught_on_the_same_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "_apart", lambda task: task())
    target = write_target(tmp_path / "target", "llama").folder
    school = School(target, tmp_path / "school", tokens=24, steps=4)
    prompts = [f"the {n}" for n in range(8)]
    lessons = {"I": Lesson(Deer(refine_from=1.0), 4), "own": Lesson(Decaying(), 8)}
    found = teach(school, prompts, ["and so", "or"], lessons)
    assert found.keys() == lessons.keys()
    for taught in found.values():
        assert len(taught.losses) == 4 and len(taught.mats) == 2
        assert all(0 <= mat <= 8 for mat in taught.mats)
    held_out = Store(school.folder / "held_out")
    assert [held_out.text(index).temperature for index in range(2)] == [0, 0]
    assert len(Store(school.folder / "train")) == 8
    # A lesson does not depend on those before it.
    other = replace(school, folder=tmp_path / "other")
    assert teach(other, prompts, ["and so", "or"], {"own": lessons["own"]})["own"] == found["own"]


def test_a_rising_loss_is_a_drift_above_one() -> None:
    assert drift([2.0] * 5 + [1.0] * 5) == 0.5
    assert drift([1.0]) == 1
    assert _stable([0.9, 1.1, 1.5]).verdict is Verdict.HOLDS
    assert _stable([0.9, 0.9, 0.9]).verdict is Verdict.FAILS
