"""Figures of samples, what is said of them, and the report that says it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.papers import plots, run, theirs
from bench.papers.claims import exactly, tally
from bench.papers.experiment import family_table
from bench.papers.experiments.families import Family
from bench.papers.experiments.own_coupling import Place, agreements, bounds
from bench.papers.plan import FULL, LARGER, QUICK, plan_for
from bench.papers.report import (
    Section,
    Table,
    as_json,
    as_markdown,
    from_json,
    section_markdown,
    table_markdown,
)
from bench.papers.stats import (
    ALPHA,
    MAT,
    at_least,
    macro,
    same_tokens,
    speedup,
    survival,
)
from bench.papers.ways import Column, Decoded, Promise, Way
from foredraft.errors import ConfigError
from tests.support.papers import sample


def column(*seconds: float) -> Column:
    return [sample(s) for s in seconds]


async def never(*_: object) -> Decoded:
    raise AssertionError


def test_speedup_mat_and_alpha_of_a_sample() -> None:
    one = sample(seconds=0.5, kept=6, rounds=2, broken=1)
    assert speedup(one) == 2
    assert MAT.of([one]) == 3
    # Six were accepted, a seventh refused; what stood behind it was not tested.
    assert ALPHA.of([one]) == pytest.approx(6 / 7)


def test_pooled_figures_count_rounds_not_prompts() -> None:
    found = [sample(kept=9, rounds=1, broken=0), sample(kept=0, rounds=2, broken=2)]
    assert MAT.of(found) == 3
    assert ALPHA.of(found) == pytest.approx(9 / 11)


def test_the_macro_mean_is_over_families() -> None:
    found = [sample(0.5), sample(0.5), sample(1.0, family=Family.TESTS)]
    assert macro(found, speedup) == 1.5


def test_same_tokens_is_told_where_it_is_promised() -> None:
    found = [sample(), sample(tokens=(9,))]
    assert same_tokens(found, Promise.TOKENS, 0.8) == "50%"
    assert same_tokens(found, Promise.LAW, 0.8) == "law"
    assert same_tokens(found, Promise.NONE, 0.8) == "inexact"
    assert same_tokens(found, Promise.LAW, 0.0) == "50%"


def test_lengths() -> None:
    counts = Counter({0: 2, 1: 1, 3: 1})
    assert at_least(counts, 1) == 0.5
    assert survival(counts, 4) == [0.5, 0.5, 1.0, 0.0]
    assert survival(Counter({0: 1}), 2) == [0.0, None]
    assert survival(counts, 3, least=2) == [0.5, 0.5, None]


def test_a_family_table_has_theirs_beside_ours() -> None:
    way = Way("DEER", never, Promise.LAW)
    found = family_table({"DEER": column(0.5, 0.5)}, [way], 0.6, {"DEER": theirs.Figure(4.0, 5.0)})
    [row] = found.rows
    assert len(row) == len(found.columns)
    assert row[:3] == ("DEER", "2.00x", "2.00x")
    assert row[-3:] == ("law", "4.00x", "5.00")


def test_the_report() -> None:
    table = Table(("a", "b"), (("1", "x|y"),), "Caption:")
    assert table_markdown(table) == "Caption:\n\n| a | b |\n| --- | --- |\n| 1 | x/y |"
    claim = exactly("says", "2x", "1x", holds=False)
    section = Section("Title", "How.", (table,), (claim,), ("plot.png",))
    text = section_markdown(section)
    assert "## Title" in text
    assert "![Title](plot.png)" in text
    assert "| says | 2x | 1x | **contradicted** |" in text
    assert tally([[claim], [claim]]) == ("holds: 0, contradicted: 2, equivalent: 0, cannot tell: 0")
    assert from_json(json.loads(json.dumps(as_json([section])))) == [section]
    assert as_markdown("# Head", [section]).startswith("# Head\n\n| table or figure |")


def test_their_tables_agree_with_their_own_means() -> None:
    """A slip in copying would show: but for one row, a printed mean is about that of the tasks."""
    for name, (tasks, mean) in theirs.DIFFUSPEC_TABLE_1.items():
        assert len(tasks) == len(theirs.DIFFUSPEC_TASKS)
        if name != "SpecDiff":
            assert mean.speedup == pytest.approx(sum(tasks) / len(tasks), abs=0.04)
    for figures in theirs.DIFFUSPEC_TABLE_4.values():
        assert len(figures) == len(theirs.DIFFUSPEC_TASKS)


def test_the_quick_plan_decodes_less_than_the_full_one() -> None:
    assert QUICK.per_family < FULL.per_family
    assert QUICK.per_family >= 2 and FULL.per_family >= 6
    for size in ("peers", "sweep", "refined", "opening"):
        assert getattr(QUICK, size).prompts < getattr(FULL, size).prompts
    assert max(FULL.batches) == 16


def test_a_larger_pair_has_a_plan_of_its_own() -> None:
    assert plan_for("", quick=False) == FULL
    assert plan_for("smollm2", quick=False) == replace(LARGER, pair="_smollm2")
    assert plan_for("smollm2", quick=True) == replace(QUICK, pair="_smollm2")
    assert LARGER.seeds == FULL.seeds and LARGER.sweep.prompts < FULL.sweep.prompts


def test_plots_are_written(tmp_path: Path) -> None:
    plots.bars(tmp_path / "a.png", {"x": [1.0, 2.0]}, ["one", "two"], "speedup")
    plots.stacked(tmp_path / "b.png", {"draft": [1.0], "verify": [2.0]}, ["one"])
    plots.sweeps(tmp_path / "c.png", [plots.Sweep("k", ["1", "2"], [1.0, 2.0], [1.0, 1.5])] * 3)
    plots.lines(tmp_path / "d.png", {"x": {1: 0.5, 2: None}}, ("n", "share"), log=True)
    plots.grids(tmp_path / "e.png", {"x": [[1.0, 2.0]]}, ("g", [1]), ("T", [1, 2]))
    plots.scatter(tmp_path / "f.png", {"x": [(0.5, 0.4)]}, {"1 - TV": lambda x: 1 - x}, ("a", "b"))
    assert all((tmp_path / f"{name}.png").stat().st_size for name in "abcdef")


def test_agreement_of_shared_draws_keeps_to_its_bounds() -> None:
    even, lopsided = np.full(4, 0.25), np.array([0.7, 0.1, 0.1, 0.1])
    first, second = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, 0.5])
    same, apart, between = agreements(
        [Place(even, even), Place(first, second), Place(even, lopsided)], draws=2000
    )
    assert (same.distance, same.share) == (0, 1)
    assert (apart.distance, apart.share) == (1, 0)
    least, most = bounds(between.distance)
    assert between.distance == pytest.approx(0.45)
    assert least - 0.05 < between.share < most + 0.05
    # Nearer to the most: the noise is the same, not merely independent (0.25).
    assert between.share > 0.45


def test_a_quick_report_replaces_no_full_one(tmp_path: Path) -> None:
    claim = exactly("it is faster", "2x", "3x", holds=True)
    table = next(iter(run.TABLES))
    section = Section("Title", "How.", (), (claim,))
    for plan in (FULL, QUICK):
        run._write(tmp_path, plan, {"target": "t"}, [], {table: [section]})
    ends = (".md", ".json", "_summary.md")
    names = {f"{name}{end}" for name in ("papers", "papers_quick") for end in ends}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert run._read(tmp_path, FULL) == run._read(tmp_path, QUICK) == {table: [section]}
    summary = (tmp_path / "papers_summary.md").read_text()
    assert "## Title" in summary and "it is faster" in summary and "How." not in summary


def test_a_report_of_another_plan_is_not_gone_on_with(tmp_path: Path) -> None:
    run._write(tmp_path, QUICK, {"target": "t"}, [], {})
    with pytest.raises(ConfigError, match="another plan"):
        run._read(tmp_path, replace(QUICK, tokens=7))
    with pytest.raises(ConfigError, match="no report"):
        run._read(tmp_path, FULL)
