"""The configuration file: strict, and every mistake is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from deployments.config import (
    DATA,
    EMBEDDED_FILE,
    IMPORT_PATH,
    ForedraftConfig,
    ServeFile,
    located,
    read,
)
from deployments.paths import with_absolute_paths
from drafter_service.config import DrafterConfig
from foredraft.errors import ConfigError
from foredraft.strict import StrictModel, parse
from orchestrator.config import OrchestratorConfig
from verifier_service.config import FeaturesConfig, VerifierConfig


def write(folder: Path, change: Any) -> Path:
    values = yaml.safe_load(EMBEDDED_FILE.read_text())
    change(values)
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_the_shipped_file_is_valid_and_names_the_builder() -> None:
    assert read(EMBEDDED_FILE).application.import_path == IMPORT_PATH


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


def folder(parent: Path, name: str) -> Path:
    found = parent / name
    found.mkdir(parents=True)
    return found


def test_a_relative_path_is_looked_for_beside_the_file_then_among_our_own(tmp_path: Path) -> None:
    mine = folder(tmp_path, "models/mine")

    def change(values: Any) -> None:
        args = values["applications"][0]["args"]
        args["drafter"]["service"] = {"model": "models/mine"}
        args["tokenizer"] = "models/embedded/tokenizer"

    args = read(write(tmp_path, change)).application.args
    assert args.drafter.service.model == mine
    assert args.verifier.service.model == DATA / "models/embedded/target"
    assert args.tokenizer == DATA / "models/embedded/tokenizer"
    assert args.tokenizer_file.is_file()


def test_every_path_of_a_configuration_is_found(tmp_path: Path) -> None:
    here, there = folder(tmp_path, "here"), folder(tmp_path, "there")
    both, second = folder(here, "both"), folder(there, "second")
    folder(there, "both")
    verifier = VerifierConfig(model=Path("both"), features=FeaturesConfig(model=Path("second")))
    found = with_absolute_paths(verifier, (here, there))
    assert found.model == both
    assert found.features == FeaturesConfig(model=second)
    drafter = DrafterConfig(model=Path("/models/d"), target=Path("second"), tokenizer=None)
    assert with_absolute_paths(drafter, (here, there)) == drafter.model_copy(
        update={"target": second}
    )


def test_a_path_that_is_nowhere_names_its_key_and_both_places(tmp_path: Path) -> None:
    def change(values: Any) -> None:
        values["applications"][0]["args"]["verifier"]["service"]["model"] = "Qwen/Qwen2.5-0.5B"

    with pytest.raises(ConfigError) as caught:
        read(write(tmp_path, change))
    assert caught.value.param == "verifier.service.model"
    message = str(caught.value)
    assert "\n" not in message
    for part in ("verifier.service.model", "Qwen/Qwen2.5-0.5B", str(tmp_path), str(DATA), "local"):
        assert part in message


def test_the_default_configuration_finds_the_embedded_pair() -> None:
    config = located(ForedraftConfig())
    assert config.verifier.service.model == DATA / "models/embedded/target"
    assert located(config) == config


def models(kind: Any) -> set[type[StrictModel]]:
    """Return the configuration models within a type, itself included."""
    found = {kind} if isinstance(kind, type) and issubclass(kind, StrictModel) else set()
    inner = [field.annotation for one in found for field in one.model_fields.values()]
    return found.union(*map(models, [*inner, *get_args(kind)]))


def test_every_field_is_described() -> None:
    found = models(ServeFile)
    assert {DrafterConfig, VerifierConfig, FeaturesConfig, OrchestratorConfig} <= found
    bare = [
        f"{model.__name__}.{name}"
        for model in found
        for name, field in model.model_fields.items()
        if not (field.description or "").endswith(".")
    ]
    assert bare == []


SCALED = {
    "drafter": {"min_replicas": 0, "max_replicas": 2},
    "verifier": {"min_replicas": 1, "max_replicas": 2},
}


def test_scaled_pools_and_their_policy_go_together(tmp_path: Path) -> None:
    def scaled(*parts: str) -> Any:
        def change(values: Any) -> None:
            entry = values["applications"][0]
            if "policy" in parts:
                entry["autoscaling_policy"] = {"policy_kwargs": {"policy": "goodput"}}
            for pool in ("drafter", "verifier"):
                if pool in parts:
                    entry["args"].setdefault(pool, {})["autoscaling"] = SCALED[pool]

        return change

    entry = read(write(tmp_path, scaled("policy", "drafter", "verifier"))).application
    assert entry.args.drafter.autoscaling is not None
    assert entry.args.drafter.autoscaling.initial == 0
    for parts in (["policy"], ["drafter"], ["drafter", "verifier"], ["policy", "verifier"]):
        with pytest.raises(ConfigError, match="go together"):
            read(write(tmp_path, scaled(*parts)))


@pytest.mark.parametrize(
    "bounds",
    [
        {"min_replicas": 3, "max_replicas": 2},
        {"initial_replicas": 3, "max_replicas": 2},
        {"min_replicas": 1, "initial_replicas": 0},
    ],
)
def test_bounds_of_a_scaled_pool_are_ordered(bounds: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must hold"):
        parse(ForedraftConfig, {"drafter": {"autoscaling": bounds}})


def test_verifiers_never_scale_to_none() -> None:
    with pytest.raises(ConfigError, match="verifier"):
        parse(ForedraftConfig, {"verifier": {"autoscaling": {"min_replicas": 0}}})


def test_a_policys_parameters_are_checked_by_name(tmp_path: Path) -> None:
    def change(values: Any) -> None:
        values["applications"][0]["autoscaling_policy"] = {
            "policy_kwargs": {"goodput": {"pricee": 1}}
        }

    with pytest.raises(ConfigError, match=r"goodput\.pricee"):
        read(write(tmp_path, change))


def test_without_proxies_the_ingress_listens_or_nobody_does(tmp_path: Path) -> None:
    def change(values: Any) -> None:
        del values["applications"][0]["args"]["ingress"]["direct"]

    with pytest.raises(ConfigError, match="nobody listens"):
        read(write(tmp_path, change))


def test_a_file_says_where_it_answers(tmp_path: Path) -> None:
    assert read(EMBEDDED_FILE).url == "http://127.0.0.1:8000"

    def proxies(values: Any) -> None:
        values |= {"proxy_location": "HeadOnly", "http_options": {"port": 9}}
        values["applications"][0]["route_prefix"] = "/a"

    assert read(write(tmp_path, proxies)).url == "http://127.0.0.1:9/a"
