"""`foredraft simulate` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foredraft.errors import ConfigError
from foredraft_cli.simulation.simulate import app
from foredraft_simulator.scenario.scenario import read_scenario

SCENARIOS = Path(__file__).parents[3] / "examples" / "scenarios"
TRACE = "steady:rate=2,duration_s=3,prompt_tokens=20,output_tokens=20"


def test_a_table_json_and_a_picture(tmp_path: Path) -> None:
    scenario, figures, picture = SCENARIOS / "h100.yaml", tmp_path / "a.json", tmp_path / "a.png"
    arguments = [str(scenario), "--trace", TRACE, "--json", str(figures), "--plot", str(picture)]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    assert "time to first token: mean" in found.output
    values = json.loads(figures.read_text())
    assert values["failed"] == 0
    assert len(values["each"]) == values["requests"]
    assert sum(each["tokens"] for each in values["each"]) == values["tokens"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_scenarios_are_read(path: Path) -> None:
    assert read_scenario(path).name


def test_a_scenario_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        read_scenario(tmp_path / "nowhere.yaml")
    (tmp_path / "bad.yaml").write_text("verifier: {replica: 1}")
    with pytest.raises(ConfigError, match=r"verifier\.replica: unknown key"):
        read_scenario(tmp_path / "bad.yaml")
