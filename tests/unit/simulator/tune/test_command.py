"""`foredraft tune` as a user runs it: the table, the files it writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from foredraft.errors import ConfigError
from foredraft_cli.check.command import examined
from foredraft_cli.simulation.tune import app
from foredraft_simulator.scenario.scenario import read_scenario
from foredraft_simulator.tune.evaluate import Job
from foredraft_simulator.tune.space import Setting
from foredraft_simulator.tune.tuning import base_setting

SHIPPED = Path(__file__).parents[4] / "foredraft_simulator/tune/scenarios/l40s.yaml"
LOAD = "steady:rate=2,duration_s=12,prompt_tokens=200,output_tokens=24"


def run(*arguments: str | Path):
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=True)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("tuned")
    files = ("--json", folder / "found.json", "--plot", folder / "found.png")
    files = (*files, "--out", folder / "serve.yaml")
    limits = ("--ttft-ms", "3000", "--tpot-ms", "150", "--trials", "2")
    result = run("l40s", "--trace", LOAD, *limits, *files)
    assert result.exit_code == 0, result.output
    yield folder, result.output


def test_every_policy_has_a_row_and_what_was_found(tuned: tuple[Path, str]) -> None:
    folder, output = tuned
    assert all(name in output for name in ("static", "utilisation", "goodput", "kept", "TTFT ms"))
    found = json.loads((folder / "found.json").read_text())
    costs = [each["figures"]["cost"] for each in found["policies"]]
    assert {each["policy"] for each in found["policies"]} == {"static", "utilisation", "goodput"}
    assert all(cost > 0 for cost in costs)
    for each in found["policies"]:
        # The best trial is the one that is shown.
        assert each["trials"][0]["figures"] == each["figures"]
        assert each["verifiers"][0][1] >= 1
    assert (folder / "found.png").stat().st_size > 10_000


def test_the_serve_file_is_what_check_accepts(tuned: tuple[Path, str]) -> None:
    folder, _ = tuned
    assert examined([folder / "serve.yaml"]) == []
    text = (folder / "serve.yaml").read_text()
    best = json.loads((folder / "found.json").read_text())["policies"][0]
    [entry] = yaml.safe_load(text)["applications"]
    assert entry["autoscaling_policy"]["policy_kwargs"]["policy"] == best["policy"]
    assert set(entry["args"]["verifier"]["autoscaling"]) >= {"min_replicas", "max_replicas"}
    assert text.startswith("# `") and "NOT kept" not in text


def test_limits_that_nothing_keeps_are_said(tmp_path: Path) -> None:
    out = tmp_path / "serve.yaml"
    more = ("--policy", "static", "--trials", "1", "--tpot-ms", "0.5", "--out", out)
    result = run("l40s", "--trace", "steady:rate=1,duration_s=4,output_tokens=8", *more)
    assert result.exit_code == 1 and "no policy keeps the limits: raise" in result.output
    assert "NOT kept" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("nowhere.yaml", "--trace", LOAD), "scenario: nowhere.yaml is neither a file nor"),
        (("l40s", "--trace", "nowhere.csv"), "trace: nowhere.csv is neither"),
        (("l40s", "--trace", LOAD, "--rate-scale", "0.00001"), "no request left: raise"),
        (("l40s", "--trace", LOAD, "--plot", "/nowhere/x.png"), "its folder does not exist"),
        (("l40s", "--trace", LOAD, "--out", "x.yaml", "--base", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_runs(
    arguments: tuple[str, ...], what: str
) -> None:
    error = run(*arguments).exception
    assert isinstance(error, ConfigError) and what in str(error)


def test_a_scenario_without_scaling_has_nothing_to_tune(tmp_path: Path) -> None:
    file = tmp_path / "fixed.yaml"
    file.write_text("name: fixed\n")
    error = run(file, "--trace", LOAD).exception
    assert isinstance(error, ConfigError) and error.param == "scaling"


def test_a_drafter_s_price_is_a_fact_of_the_scenario() -> None:
    scenario = read_scenario(SHIPPED)
    dearer = scenario.model_copy(
        update={"drafter": scenario.drafter.model_copy(update={"price": 0.5})}
    )
    assert base_setting(scenario).scaling.goodput.price == pytest.approx(0.43)
    assert base_setting(dearer).scaling.goodput.price == 0.5


def test_the_same_setting_has_the_same_run() -> None:
    from foredraft_simulator.traces.named import named_trace

    scenario = read_scenario(SHIPPED)
    arrivals = named_trace("steady:rate=2,duration_s=5,output_tokens=8").arrivals
    setting: Setting = base_setting(scenario)
    runs = [Job(scenario, arrivals, 0, 99).run(setting) for _ in range(2)]
    assert runs[0] == runs[1] and runs[0].figures.failed == 0
