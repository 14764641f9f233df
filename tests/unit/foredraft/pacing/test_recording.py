"""Recordings: what was written is read, and what is no recording of a model is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import ConfigError
from foredraft.pacing.recording import (
    DRAFTER,
    TARGET,
    RecordedText,
    Recording,
    continuations,
    prefixes,
    write,
)

TEXTS = [RecordedText((3, 1, 4, 1, 5), 2, 0.0, 7), RecordedText((2, 7, 1), 1, 0.8, 8)]
HASHES = {TARGET: "t", DRAFTER: "d"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "recording.safetensors"
    write(path, TEXTS, {"drafts.4.tokens": np.zeros((5, 4, 2), np.int32)}, HASHES)
    return path


def target(path: Path, weights: str = "t", vocab: int = 8) -> Recording:
    return Recording(path, TARGET, "model", weights, vocab)


def test_texts_are_read_as_they_were_written(file: Path) -> None:
    assert target(file).texts() == TEXTS
    assert target(file).numbers_of_slots() == [4]


def test_each_prefix_that_was_continued_has_its_token() -> None:
    assert [token for _, token in prefixes(TEXTS)] == [4, 1, 5, 7, 1]
    found = continuations(TEXTS)
    assert found[hash_prefix((3, 1, 4))] == 1
    assert hash_prefix((3, 1, 4, 1, 5)) not in found


def test_texts_that_contradict_each_other_are_not_written(tmp_path: Path) -> None:
    other = RecordedText((3, 1, 5), 2, 0.8, 7)
    with pytest.raises(ValueError, match="different tokens"):
        write(tmp_path / "recording", [*TEXTS, other], {}, HASHES)


def test_a_recording_of_another_model_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="not of the target"):
        target(file, weights="other")
    with pytest.raises(ConfigError, match="vocabulary"):
        target(file, vocab=5).texts()


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recording"):
        target(tmp_path / "missing")
    (tmp_path / "pickle").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(ConfigError, match="recording"):
        target(tmp_path / "pickle")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", np.zeros(7, np.int32)),
        ("tokens", np.zeros((8, 1), np.int32)),
        ("tokens", np.zeros(8, np.float32)),
        ("tokens", np.full(8, -1, np.int32)),
        ("lengths", np.array([[0, 5], [1, 3]], np.int32)),
        ("lengths", np.array([[5, 5], [1, 3]], np.int32)),
        ("lengths", np.array([[2, 5, 1], [1, 3, 1]], np.int32)),
        ("lengths", np.array([[2, 2**30], [1, 3]], np.int32)),
        ("sampling", np.array([[0.0, np.nan], [0.8, 1.0]])),
        ("sampling", np.zeros((1, 2))),
    ],
)
def test_arrays_out_of_bounds_are_refused(file: Path, name: str, value: np.ndarray) -> None:
    save_file(load_file(file) | {name: value}, file, HASHES)
    with pytest.raises(ConfigError, match="recording"):
        target(file).texts()


def test_an_array_that_is_missing_is_refused(file: Path) -> None:
    save_file({}, file, HASHES)
    with pytest.raises(ConfigError, match="no tokens"):
        target(file).texts()
    with pytest.raises(ConfigError, match="no drafts"):
        target(file).numbers_of_slots()
