"""What a target and a drafter that are given as folders are served with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deployments.config import model_path
from deployments.ingress.direct.config import DirectConfig
from deployments.pair import served_pair
from foredraft.errors import ConfigError

TARGET, DRAFTER = (Path(model_path(f"models/embedded/{name}")) for name in ("target", "drafter"))
HTTP = DirectConfig(port=8123)


def test_a_pair_of_one_tokenizer_needs_nothing_else() -> None:
    file = served_pair(TARGET, DRAFTER, HTTP, "cpu", 2)
    args = file.application.args
    drafter, verifier = args.drafter, args.verifier
    assert (drafter.service.model, verifier.service.model) == (DRAFTER, TARGET)
    assert drafter.service.target_tokenizer is None and verifier.service.features is None
    assert (drafter.num_gpus, verifier.num_gpus, verifier.service.threads) == (0, 0, 2)
    assert file.url == "http://127.0.0.1:8123" and args.name == "target"


def test_on_gpus_each_has_one() -> None:
    args = served_pair(TARGET, DRAFTER, HTTP, "cuda", 2).application.args
    assert (args.drafter.num_gpus, args.verifier.num_gpus) == (1, 1)
    assert args.drafter.service.device == args.verifier.service.device == "cuda"


@pytest.mark.parametrize("reading", [{"target_layer_ids": [1]}, {"dflash_config": {}}])
def test_a_drafter_that_reads_features_is_given_them(tmp_path: Path, reading: dict) -> None:
    (tmp_path / "config.json").write_text(json.dumps(reading))
    args = served_pair(TARGET, tmp_path, HTTP, "cpu", 2).application.args
    assert args.verifier.service.features is not None
    assert args.verifier.service.features.model == tmp_path
    assert args.drafter.service.target == TARGET


def test_a_drafter_of_another_tokenizer_translates(tmp_path: Path) -> None:
    shutil.copy(DRAFTER / "config.json", tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    args = served_pair(TARGET, tmp_path, HTTP, "cpu", 2).application.args
    assert args.drafter.service.target_tokenizer == args.tokenizer_file


def test_a_drafter_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        served_pair(TARGET, tmp_path, HTTP, "cpu", 2)
    assert refused.value.param == "drafter" and str(tmp_path) in str(refused.value)
