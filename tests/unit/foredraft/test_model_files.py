"""What names a checkpoint: another byte or another file makes it another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.errors import WeightsError
from foredraft.model_files import eos_token_ids, weights_hash


def test_checkpoints_are_told_apart_by_their_files(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(10_000_000))
    (tmp_path / "config.json").write_text("{}")
    known = {weights_hash(tmp_path)}
    (tmp_path / "README.md").write_text("of no concern")
    assert weights_hash(tmp_path) in known
    assert weights_hash(tmp_path, "fp16") not in known
    for change in (
        lambda: (tmp_path / "config.json").write_text('{"a": 1}'),
        lambda: weights.write_bytes(bytes(9_999_999)),
        lambda: weights.write_bytes(b"x" + bytes(9_999_998)),
        lambda: (tmp_path / "model-2.safetensors").write_bytes(b"y"),
    ):
        change()
        found = weights_hash(tmp_path)
        assert found not in known
        known.add(found)


def test_the_end_of_texts_is_what_generation_says(tmp_path: Path) -> None:
    assert eos_token_ids(tmp_path) == ()
    (tmp_path / "config.json").write_text('{"eos_token_id": 3}')
    assert eos_token_ids(tmp_path) == (3,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": null}')
    assert eos_token_ids(tmp_path) == (3,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 3]}')
    assert eos_token_ids(tmp_path) == (7, 3)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(WeightsError, match="generation_config"):
        eos_token_ids(tmp_path)
