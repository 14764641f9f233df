"""The configuration file: strict, and every mistake is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.config import DEFAULT_FILE, IMPORT_PATH, ROOT, located, read
from drafter_service.config import DrafterConfig
from foredraft.errors import ConfigError
from verifier_service.config import FeaturesConfig, VerifierConfig


def write(folder: Path, change: Any) -> Path:
    values = yaml.safe_load(DEFAULT_FILE.read_text())
    change(values)
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_the_shipped_file_is_valid_and_names_the_builder() -> None:
    assert read(DEFAULT_FILE).application.import_path == IMPORT_PATH


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ((), "proxy_locaton"),
        (("http_options",), "prot"),
        (("applications", 0), "rout_prefix"),
        (("applications", 0, "args"), "tokeniser"),
        (("applications", 0, "args", "orchestrator"), "ald"),
        (("applications", 0, "args", "orchestrator", "adl"), "kmax"),
        (("applications", 0, "args", "drafter"), "replicas"),
        (("applications", 0, "args", "drafter", "service"), "modle"),
        (("applications", 0, "args", "drafter", "service", "cps"), "lambda_"),
        (("applications", 0, "args", "verifier", "service"), "numeric"),
    ],
)
def test_a_planted_typo_is_an_error_that_names_it(
    tmp_path: Path, path: tuple[Any, ...], key: str
) -> None:
    def plant(values: Any) -> None:
        for part in path:
            if isinstance(values, dict):
                values = values.setdefault(part, {})
                if part == "service":
                    values["model"] = "models/embedded"
            else:
                values = values[part]
        values[key] = 1

    with pytest.raises(ConfigError, match="unknown key") as caught:
        read(write(tmp_path, plant))
    assert caught.value.param is not None
    assert caught.value.param.endswith(key)


def test_a_bad_value_is_named(tmp_path: Path) -> None:
    def plant(values: Any) -> None:
        values["applications"][0]["args"]["verifier"] = {"num_replicas": 0}

    with pytest.raises(ConfigError) as caught:
        read(write(tmp_path, plant))
    assert str(caught.value.param).endswith("verifier.num_replicas")


@pytest.mark.parametrize("text", ["- just\n- a list\n", "a: [", ""])
def test_nonsense_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path / "nothing.yaml")


def test_relative_folders_are_the_projects_own() -> None:
    drafter = DrafterConfig(model=Path("models/d"), target=Path("/models/t"))
    verifier = VerifierConfig(model=Path("m"), features=FeaturesConfig(model=Path("models/d")))
    assert located(drafter) == DrafterConfig(model=ROOT / "models/d", target=Path("/models/t"))
    assert located(verifier).features == FeaturesConfig(model=ROOT / "models/d")
    assert located(DrafterConfig(model=Path("d"))) == DrafterConfig(model=ROOT / "d")
