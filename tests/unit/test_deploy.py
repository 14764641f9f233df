"""`foredraft deploy` and `foredraft status` as far as they need no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema
from typer.testing import CliRunner

from deployments.config import EMBEDDED_FILE
from foredraft.errors import ConfigError
from foredraft_cli.cluster.deploy import app
from foredraft_cli.cluster.status import trial_line

RUNNER = CliRunner()


def test_the_file_for_serve_deploy_has_all_options_and_no_arguments() -> None:
    result = RUNNER.invoke(app, [str(EMBEDDED_FILE), "--yaml"])
    assert result.exit_code == 0, result.output
    values = yaml.safe_load(result.stdout)
    ServeDeploySchema.model_validate(values)
    [application] = values["applications"]
    assert "args" not in application
    names = [each["name"] for each in application["deployments"]]
    assert names == ["ingress", "drafter", "canary", "verifier"]
    ingress = application["deployments"][0]["user_config"]
    assert Path(ingress["verifier"]["service"]["model"]).is_absolute()


def test_a_bad_file_is_refused_before_a_cluster_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("applications: [{args: {drafter: {canary: {share: 0}}}}]")
    result = RUNNER.invoke(app, [str(file)])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.param == "applications.0.args.drafter.canary.share"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (None, "on trial with 10% of the sessions: stable 2.00 tokens/round at 100 tokens/s in 90"),
        ("rolled back", "rolled back: worse"),
    ],
)
def test_a_trial_is_one_line(outcome: str | None, expected: str) -> None:
    arm = {"accepted_per_round": 2.0, "tokens_per_second": 100.0, "sessions": 90}
    reason = "worse" if outcome else ""
    canary = {"share": 0.1, "outcome": outcome, "reason": reason, "arms": {"stable": arm}}
    assert trial_line(canary).startswith(expected)
