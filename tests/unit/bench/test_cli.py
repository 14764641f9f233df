"""`foredraft bench` and `foredraft bench papers` beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.compare import cli
from bench.papers.plan import QUICK, Plan


def test_bench_alone_still_measures_and_writes_its_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[int] = []

    async def measure(file: Any, texts: list[str], *_: Any) -> list[Any]:
        asked.append(len(texts))
        return []

    monkeypatch.setattr(cli, "_measure", measure)
    out = tmp_path / "rows.json"
    done = CliRunner().invoke(cli.app, ["--quick", "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert asked == [12]
    assert json.loads(out.read_text())["rows"] == []


@pytest.mark.parametrize(("options", "name"), [([], "bench"), (["--quick"], "quick")])
def test_a_quick_bench_replaces_no_full_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], name: str
) -> None:
    async def measure(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(cli, "_measure", measure)
    monkeypatch.setattr(cli, "RESULTS", tmp_path)
    done = CliRunner().invoke(cli.app, options)
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.json", f"{name}.md"}


def test_papers_runs_the_papers_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench.papers import run

    asked: list[tuple[Plan, Path]] = []

    async def measure(config: Any, plan: Plan, folder: Path, *_: Any) -> None:
        asked.append((plan, folder))

    async def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(run, "run", measure)
    monkeypatch.setattr(cli, "_measure", never)
    done = CliRunner().invoke(cli.app, ["papers", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert asked == [(QUICK, tmp_path)]
