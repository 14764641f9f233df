"""What names a checkpoint: another byte or another file makes it another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foredraft.errors import WeightsError
from foredraft.model_files import eos_token_ids, sha256, verify_files, weights_hash


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
        # Between any pieces that samples would have been taken of.
        lambda: weights.write_bytes(b"x" + bytes(5_100_000) + b"y" + bytes(4_899_997)),
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


@pytest.mark.parametrize("place", ["target/tokenizer.json", "tokenizer/tokenizer.json"])
def test_a_tokenizer_is_held_to_the_manifest(tmp_path: Path, place: str) -> None:
    """Another one would encode prompts as other tokens, and say nothing."""
    model, tokenizer = tmp_path / "target", tmp_path / place
    for file in (model / "model.safetensors", tokenizer):
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    digests = {f"target/{name}": sha256(model / name) for name in ("model.safetensors",)}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(digests))
    with pytest.raises(WeightsError, match=r"tokenizer\.json is not in its manifest"):
        verify_files(model)
    manifest.write_text(json.dumps(digests | {place: sha256(tokenizer)}))
    verify_files(model)
    tokenizer.write_text('{"another": 1}')
    with pytest.raises(WeightsError, match=r"tokenizer\.json differs"):
        verify_files(model)
