"""A GGUF file as a target: converted once, wherever the configuration is read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from deployments.config import EMBEDDED_FILE, ForedraftConfig, located, read
from foredraft.errors import ConfigError, WeightsError
from foredraft.gguf import cache
from foredraft.gguf.cache import cache_folder, cached, converted
from foredraft.model_files import sha256
from tests.support.gguf_files import tiny_model, write_gguf
from verifier_service.config import VerifierConfig
from verifier_service.target_folder import with_target_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("file") / "Tiny-1.5.Q8.gguf", tiny_model("qwen2"))


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("FOREDRAFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "foredraft"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "foredraft"


def test_a_file_is_converted_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cached(sha256(file)) is None
    folder = converted(file)
    assert cached(sha256(file)) == folder
    monkeypatch.setattr(cache, "_convert", lambda *_: pytest.fail("it was converted again"))
    assert converted(file) == folder


def test_the_least_recently_used_go_and_what_was_abandoned(file: Path, own_cache: Path) -> None:
    entries = own_cache / "gguf"
    names = ["used", "a", "b", "c", "d"]
    for age, name in enumerate([*names, ".abandoned", ".young"]):
        (entries / name).mkdir(parents=True)
        os.utime(entries / name, (age + 1, age + 1))
    os.utime(entries / ".young")
    os.utime(entries / "used")
    made = converted(file)
    assert {each.name for each in entries.iterdir()} == {"used", "c", "d", made.name, ".young"}
    os.utime(made, (1, 1))
    converted(file)
    assert made.stat().st_mtime > time.time() - 60


def test_another_process_may_be_faster(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faster = cache._convert

    def race(*given: object) -> None:
        faster(*given)
        faster(*given)

    monkeypatch.setattr(cache, "_convert", race)
    assert (converted(file) / "config.json").is_file()


def served(file: Path, folder: Path, **args: object) -> Path:
    values = yaml.safe_load(EMBEDDED_FILE.read_text())
    given = values["applications"][0]["args"]
    given.pop("model_name", None)
    given.pop("tokenizer", None)
    given["verifier"]["service"]["model"] = str(file)
    given.update(args)
    (folder / "serve.yaml").write_text(yaml.safe_dump(values))
    return folder / "serve.yaml"


def test_every_reader_of_a_configuration_sees_the_folder(file: Path, tmp_path: Path) -> None:
    config = read(served(file, tmp_path)).application.args
    folder = cached(sha256(file))
    assert folder is not None
    assert config.verifier.service.model == folder
    assert config.tokenizer_file == folder / "tokenizer.json"
    assert config.name == config.verifier.service.name == "Tiny-1.5.Q8"
    # As Serve hands it on to the application's builder.
    handed = ForedraftConfig.model_validate(config.model_dump(mode="json"))
    assert located(handed) == config


def test_a_drafters_target_may_be_the_file_too(file: Path, tmp_path: Path) -> None:
    drafter = {"service": {"model": str(tmp_path), "target": str(file)}}
    config = read(served(file, tmp_path, drafter=drafter)).application.args
    assert config.drafter.service.target == cached(sha256(file))
    drafter["service"]["target"] = str(tmp_path / "none.gguf")
    with pytest.raises(ConfigError, match=r"drafter.service.target: there is no GGUF file"):
        read(served(file, tmp_path, drafter=drafter))


def test_a_name_that_is_given_stays(file: Path, tmp_path: Path) -> None:
    assert read(served(file, tmp_path, model_name="mine")).application.args.name == "mine"
    config = VerifierConfig(model=file, name="mine")
    assert with_target_folder(config).name == "mine"
    assert with_target_folder(with_target_folder(config)) == with_target_folder(config)


def test_a_file_that_cannot_be_used_is_an_error_that_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"verifier.service.model: there is no GGUF file"):
        read(served(tmp_path / "none.gguf", tmp_path))
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=r"verifier.service.model: .* truncated"):
        read(served(tmp_path / "bad.gguf", tmp_path))
    with pytest.raises(WeightsError, match="there is no GGUF file"):
        with_target_folder(VerifierConfig(model=tmp_path / "none.gguf"))
