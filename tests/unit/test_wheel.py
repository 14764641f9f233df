"""What an installation holds: names of our own, the configuration, and the embedded models."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = {"denoiser_service", "deployments", "drafter_service", "orchestrator", "verifier_service"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that goes into the wheel, without the compiled libraries."""
    folder = tmp_path_factory.mktemp("wheel")
    setup = [sys.executable, "-W", "ignore", "-c", "import setuptools; setuptools.setup()", "-q"]
    subprocess.run(
        [*setup, "egg_info", "--egg-base", str(folder), "build_py", "--build-lib", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


def test_every_top_level_name_is_our_own(built: Path) -> None:
    names = {path.name for path in built.iterdir() if path.suffix != ".egg-info"}
    assert names >= OWN | {"foredraft", "foredraft_cli", "foredraft_data"}
    assert all(name in OWN or name.startswith("foredraft") for name in names)


def test_the_configuration_and_the_models_are_inside(built: Path) -> None:
    local = built / "deployments/local.yaml"
    assert local.read_bytes() == (ROOT / "deployments/local.yaml").read_bytes()
    models = ROOT / "models"
    wanted = {path.relative_to(models) for path in models.rglob("*") if path.is_file()}
    assert wanted
    for path in wanted:
        copy = built / "foredraft_data/models" / path
        assert copy.stat().st_size == (models / path).stat().st_size, path


def test_every_package_of_the_repository_is_inside_or_stays_out_on_purpose(built: Path) -> None:
    def packages(folder: Path) -> set[str]:
        found = (path.parent.relative_to(folder) for path in folder.rglob("__init__.py"))
        return {".".join(path.parts) for path in found if path.parts[0] in OWN | {"foredraft"}}

    assert packages(built) == packages(ROOT)


def test_the_serving_dependencies_are_the_default_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {item.split("=")[0].split(">")[0].split("[")[0] for item in project["dependencies"]}
    assert names >= {"torch", "transformers", "ray", "tokenizers", "grpcio", "llguidance"}
