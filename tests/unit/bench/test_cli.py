"""`foredraft bench` on a target that is not ours: what it measures, and where it writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bench.commands import app as cli
from bench.commands import report
from bench.compare import pairs
from foredraft.errors import ConfigError
from tests.support.checkpoints import write_drafter, write_target


@pytest.fixture
def ours_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cluster's rows: it is for the app ring."""

    async def no_rows(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(pairs, "_through_cluster", no_rows)


@pytest.mark.slow
@pytest.mark.usefixtures("ours_only")
def test_every_way_decodes_the_same_tokens_and_has_its_row(tmp_path: Path) -> None:
    made = write_target(tmp_path / "target", "qwen2")
    drafter = write_drafter(tmp_path / "drafter", made)
    args = {
        "verifier": {"service": {"model": str(made.folder), "kv_tokens": 2048}},
        "drafter": {"service": {"model": str(drafter), "dtype": "float32", "max_mask_slots": 8}},
    }
    config, texts, out = (tmp_path / name for name in ("own.yaml", "texts.jsonl", "rows.json"))
    config.write_text(yaml.safe_dump({"applications": [{"args": args}]}))
    texts.write_text(json.dumps({"text": "def mean(values):\n"}) + "\n")
    options = ["--config", str(config), "--prompts", str(texts), "--json", str(out)]
    done = CliRunner().invoke(cli.app, ["--quick", *options])
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text())["rows"]
    ours = [row for row in rows if not row["drafter"].startswith("transformers")]
    ways = ["plain", "dlm ngram+tree", "dlm tree", "dlm coupled", "n-gram lookup"]
    assert [(row["temperature"], row["drafter"]) for row in ours] == [
        (temperature, way) for temperature in (0.0, 0.8) for way in ways
    ]
    assert all(row["identical"] == 1 for row in ours)
    assert len(rows) == len(ours) + 4
    assert {(row["pair"], row["prompts"]) for row in rows} == {("target", "own")}


@pytest.mark.parametrize(("options", "name"), [([], "bench"), (["--quick"], "quick")])
def test_a_quick_bench_replaces_no_full_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], name: str
) -> None:
    async def measure(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(cli, "measure_pairs", measure)
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    done = CliRunner().invoke(cli.app, options)
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.json", f"{name}.md"}


def test_a_table_that_no_paper_has_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["papers", "--only", "no_table", "--out", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.param == "only"
    assert not list(tmp_path.iterdir())
