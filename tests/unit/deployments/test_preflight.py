"""A configuration whose folders cannot be used is one line that names them, and starts nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from deployments.config import ForedraftConfig, located, model_path
from deployments.preflight import check_models
from foredraft.errors import ConfigError
from foredraft.strict import parse
from foredraft_cli import main as cli
from tests.support.checkpoints import write_target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("models") / "Tiny-Llama", "llama").folder


def config(verifier: Path, **fields: Any) -> ForedraftConfig:
    return parse(ForedraftConfig, {"verifier": {"service": {"model": str(verifier)}}} | fields)


def test_names_and_tokenizers_are_the_targets_own(target: Path) -> None:
    found = config(target)
    check_models(found)
    assert found.name == "Tiny-Llama"
    assert found.tokenizer_file == target / "tokenizer.json"
    assert config(target, model_name="mine").name == "mine"
    embedded = located(ForedraftConfig())
    check_models(embedded)
    assert (
        embedded.tokenizer_file
        == Path(model_path("models/embedded/tokenizer/tokenizer.json")).resolve()
    )


def test_another_tokenizer_is_refused_and_both_are_named(target: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        check_models(config(target, tokenizer="models/embedded/tokenizer"))
    assert refused.value.param == "tokenizer"
    assert str(target) in str(refused.value)
    assert "models/embedded/tokenizer/tokenizer.json" in str(refused.value)


@pytest.mark.parametrize("key", ["verifier", "drafter"])
def test_a_folder_that_is_no_model_is_named(key: str, target: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    services = {"verifier": str(target), "drafter": "models/embedded/drafter"}
    for folder, reason in ((missing, "no model folder"), (tmp_path, "no config.json")):
        changed = services | {key: str(folder)}
        values = {name: {"service": {"model": model}} for name, model in changed.items()}
        with pytest.raises(ConfigError, match=reason) as refused:
            check_models(parse(ForedraftConfig, values))
        assert str(folder) in str(refused.value)
        assert refused.value.param == f"{key}.service.model"


def test_a_target_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match=r"no tokenizer\.json") as refused:
        check_models(config(tmp_path))
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("command", [["serve"], ["generate", "x = 1"], ["demo"], ["audit"]])
def test_commands_end_with_one_line(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {"verifier": {"service": {"model": str(tmp_path / "nothing")}}}
    entry = {"import_path": "deployments.app:build", "args": values}
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump({"applications": [entry]}))
    monkeypatch.setattr(sys, "argv", ["foredraft", *command, "--config", str(file)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("foredraft: verifier.service.model: there is no model folder")
    assert str(tmp_path / "nothing") in line
    assert not ray.is_initialized()
