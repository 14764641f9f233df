"""What cannot be converted is refused by name, and leaves nothing behind."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foredraft.errors import WeightsError
from foredraft.gguf.convert import convert
from foredraft.gguf.header import read_header
from tests.support.gguf_files import tiny_model, write_gguf

NORM = "blk.1.ffn_norm.weight"
HEAD = struct.Struct("<4sIQQ")


def refused(file: Path, match: str) -> None:
    with pytest.raises(WeightsError, match=match):
        convert(file, file.parent / "made" / "folder", lambda done, total: None)
    assert not (file.parent / "made").exists() or not any((file.parent / "made").iterdir())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = write_gguf(tmp_path_factory.mktemp("sound") / "tiny.gguf", tiny_model("llama"))
    return file.read_bytes()


KEYS: list[tuple[dict[str, Any], str]] = [
    ({"general.architecture": "mamba"}, "architecture 'mamba' is not supported"),
    ({"llama.block_count": None}, "no llama.block_count"),
    ({"llama.block_count": 1 << 30}, "llama.block_count is 1073741824"),
    ({"llama.block_count": 1000}, "there are 21 tensors"),
    ({"llama.block_count": "two"}, "llama.block_count is 'two'"),
    ({"llama.embedding_length": 128}, "token_embd.weight has shape"),
    ({"llama.attention.head_count_kv": 3}, "head_count_kv does not divide"),
    ({"llama.attention.value_length": 16}, "llama.attention.value_length"),
    ({"llama.rope.dimension_count": 16}, "llama.rope.dimension_count"),
    ({"llama.rope.freq_base": 0.0}, "llama.rope.freq_base is 0.0"),
    ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}, "'longrope'"),
    ({"llama.expert_count": 8}, "llama.expert_count is 8"),
    ({"llama.attention.sliding_window": 64}, "llama.attention.sliding_window is not supported"),
    ({"llama.vocab_size": 999}, "llama.vocab_size"),
    ({"tokenizer.ggml.model": "llama"}, "tokenizer 'llama'"),
    ({"tokenizer.ggml.pre": "tekken"}, "pre-tokenizer 'tekken'"),
    ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, "a token twice"),
    ({"tokenizer.ggml.tokens": [1, 2]}, "tokens is no list of type str"),
    ({"tokenizer.ggml.token_type": [1]}, "token_type has 1 types of 384"),
    ({"tokenizer.ggml.merges": ["qq zz"]}, "merges has 'qq zz'"),
    ({"tokenizer.ggml.merges": ["a"]}, "merges has 'a'"),
    ({"tokenizer.ggml.eos_token_id": 384}, "eos_token_id is 384"),
    ({"tokenizer.chat_template": 7}, "chat_template is no string"),
    ({"general.alignment": 3}, "general.alignment is 3"),
]


@pytest.mark.parametrize(("keys", "match"), KEYS, ids=[next(iter(each)) for each, _ in KEYS])
def test_metadata(tmp_path: Path, keys: dict[str, Any], match: str) -> None:
    refused(write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), keys=keys), match)


TENSORS: list[tuple[dict[str, np.ndarray | None], str]] = [
    ({NORM: None}, f"{NORM} is missing"),
    ({NORM: np.ones(32, np.float32)}, rf"{NORM} has shape \[32\], not \[64\]"),
    ({NORM: np.ones(64, np.float64)}, f"{NORM} has the quantization F64"),
    ({NORM: np.full(64, np.nan, np.float32)}, f"{NORM} holds values that are not finite"),
    ({NORM: np.full(64, 3.4e38, np.float32)}, f"{NORM} holds values that are not finite"),
    ({"blk.0.attn_q.bias": np.ones(64, np.float32)}, "blk.0.attn_q.bias is not one"),
    ({"rope_freqs.weight": np.arange(16, dtype=np.float32)}, "rope_freqs.weight is not the scal"),
    ({"rope_freqs.weight": np.full(3, 8, np.float32)}, "rope_freqs.weight is not the scaling"),
    ({"token_embd.weight": None}, "token_embd.weight is missing"),
]


@pytest.mark.parametrize(("tensors", "match"), TENSORS, ids=range(len(TENSORS)))
def test_tensors(tmp_path: Path, tensors: dict[str, np.ndarray | None], match: str) -> None:
    refused(write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), tensors=tensors), match)


@pytest.mark.parametrize(
    ("head", "match"),
    [
        ((b"GGUX", 3, 20, 30), "not a GGUF file"),
        ((b"GGUF", 1, 20, 30), "version 1 is not supported"),
        ((b"GGUF", 3 << 24, 20, 30), "version 50331648 is not supported"),
        ((b"GGUF", 3, 1 << 60, 30), "number of tensors is"),
        ((b"GGUF", 3, 20, 1 << 60), "number of metadata keys is"),
        ((b"GGUF", 3, 1 << 16, 0), "truncated|has|tensor"),
    ],
)
def test_a_lying_head(tmp_path: Path, sound: bytes, head: Any, match: str) -> None:
    (tmp_path / "lies.gguf").write_bytes(HEAD.pack(*head) + sound[HEAD.size :])
    refused(tmp_path / "lies.gguf", match)


def value(key: bytes, kind: int, payload: bytes) -> bytes:
    """Return a file of one metadata key."""
    name = struct.pack("<Q", len(key)) + key
    return HEAD.pack(b"GGUF", 3, 0, 1) + name + struct.pack("<I", kind) + payload


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (value(b"k", 8, struct.pack("<Q", 1 << 62)), "truncated: k needs 4611686018427387904"),
        (value(b"k", 8, struct.pack("<Q", 2) + b"\xff\xfe"), "k is not UTF-8"),
        (value(b"k", 9, struct.pack("<IQ", 0, 1 << 62)), "truncated: k needs"),
        (value(b"k", 9, struct.pack("<IQ", 12, 1 << 62)), "truncated: k needs"),
        (value(b"k", 9, struct.pack("<IQ", 8, 1 << 62)), "truncated: k has"),
        (value(b"k", 9, struct.pack("<IQ", 9, 1)), "array of the unsupported type 9"),
        (value(b"k", 13, b""), "unknown type 13"),
        (value(b"k" * 70000, 0, b"\0"), "70000 bytes; at most 65536"),
        (b"", "empty"),
    ],
)
def test_a_lying_value(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "lies.gguf").write_bytes(content)
    refused(tmp_path / "lies.gguf", match)


def tensor(shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    """Return a file of one tensor."""
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    name = struct.pack("<Q", 1) + b"t"
    info = name + sizes + struct.pack("<IQ", kind, offset)
    return HEAD.pack(b"GGUF", 3, 1, 0) + info + bytes(64)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (tensor((1 << 63, 1 << 63), 0, 0), "truncated: t ends at byte"),
        (tensor((4,), 0, (1 << 64) - 4), "truncated: t ends at byte"),
        (tensor((4, 0), 0, 0), "t has an empty dimension"),
        (tensor((1,) * 5, 0, 0), "t has 5 dimensions"),
        (tensor((), 0, 0), "t has 0 dimensions"),
        (tensor((4,), 99, 0), "unknown quantization type 99"),
        (tensor((33,), 8, 0), "the rows of t have 33 values, which Q8_0 cannot store"),
    ],
)
def test_a_lying_tensor(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "lies.gguf").write_bytes(content)
    refused(tmp_path / "lies.gguf", match)


def test_a_truncated_file_wherever_it_ends(tmp_path: Path, sound: bytes) -> None:
    rng = random.Random(0)
    for size in [*range(1, 40), *(rng.randrange(len(sound)) for _ in range(60)), len(sound) - 1]:
        (tmp_path / "cut.gguf").write_bytes(sound[:size])
        refused(tmp_path / "cut.gguf", "truncated")


def test_no_bytes_do_more_than_be_refused(tmp_path: Path, sound: bytes) -> None:
    rng = random.Random(0)
    head = len(sound) - sum(
        each.size for each in read_header(_write(tmp_path, sound)).tensors.values()
    )
    for number in range(150):
        content = bytearray(sound)
        for _ in range(rng.randrange(1, 5)):
            content[rng.randrange(head)] = rng.randrange(256)
        folder = tmp_path / str(number)
        try:
            convert(_write(tmp_path, bytes(content)), folder, lambda done, total: None)
        except WeightsError:
            assert not folder.exists()


def _write(folder: Path, content: bytes) -> Path:
    (folder / "file.gguf").write_bytes(content)
    return folder / "file.gguf"


def test_no_file_and_a_folder_that_is_there(tmp_path: Path, sound: bytes) -> None:
    refused(tmp_path / "none.gguf", "there is no GGUF file 'none.gguf'")
    with pytest.raises(WeightsError, match="exists already"):
        convert(_write(tmp_path, sound), tmp_path, lambda done, total: None)
