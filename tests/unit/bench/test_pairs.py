"""Which pairs are measured: those whose files are there; the others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare import pairs
from bench.compare.pairs import load_pair, standard_pairs
from bench.compare.workload import plan
from deployments.config import EMBEDDED_FILE
from foredraft.errors import ConfigError


def test_a_pair_whose_files_are_missing_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standard = (("embedded", EMBEDDED_FILE), ("smollm2", tmp_path / "no.yaml"))
    monkeypatch.setattr(pairs, "STANDARD", standard)
    found, left_out = standard_pairs(quick=True)
    assert [(pair.name, pair.chat, [one.name for one in pair.sets]) for pair in found] == [
        ("embedded", False, ["held_out"])
    ]
    assert len(left_out) == 1 and left_out[0].startswith("the pair smollm2 is left out: ")


def test_a_pair_is_named_by_its_application(tmp_path: Path) -> None:
    pair, left_out = load_pair(None, EMBEDDED_FILE, quick=True)
    assert (pair.name, left_out) == ("foredraft-embedded", [])
    assert len(pair.sets[0].prompts) == pair.plan.count
    with pytest.raises(ConfigError):
        load_pair(None, tmp_path / "no.yaml", quick=True)


@pytest.mark.parametrize("chat", [False, True])
def test_a_quick_plan_is_a_part_of_the_full_one(chat: bool) -> None:
    quick, full = plan(chat, quick=True), plan(chat, quick=False)
    assert quick.count < full.count
    names = [{mode.name for mode in each.modes} for each in (quick, full)]
    assert names[0] < names[1]
