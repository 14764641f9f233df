"""A converted tokenizer reads texts as transformers' own conversion does, or as llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

from foredraft.gguf.convert import convert
from foredraft.model_files import eos_token_ids
from tests.support.gguf_files import TEMPLATE, tiny_model, trained, write_gguf
from tests.support.tokenizers_by_hand import BOOK

TEXTS = (
    BOOK,
    "It's 12345 o'clock, they'LL say; 1 22 333 4444  55555",
    "tabs\t\tand   spaces \n\n\n  then \r\n lines  ",
    "naïve größe 価値 😀👍🏽 e\u0301 ﷽ \u00a0x",
    "<|im_start|>user\nwhy <think>so</think>?<|im_end|>\n<|endoftext|>",
    "x=[1,2];y={'a':b}#!/usr/bin/env python3\n    return -x**2 // 7",
    "",
    " ",
)


def made(folder: Path, **keys: Any) -> Path:
    """Return the folder that a tiny file with these tokenizer keys is converted to."""
    named = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    file = write_gguf(folder / "tiny.gguf", tiny_model("llama"), keys=named)
    convert(file, folder / "converted", lambda done, total: None)
    return folder / "converted"


def tokenizer_of(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("pre", ["default", "llama-bpe", "qwen2", "deepseek-r1-qwen", "dbrx"])
def test_ids_are_those_of_transformers(tmp_path: Path, pre: str) -> None:
    folder = made(tmp_path, pre=pre)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    own, wrapped = tokenizer_of(folder), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        wanted = theirs.encode(text)
        assert own.encode(text).ids == wanted
        assert wrapped.encode(text) == wanted
        assert own.decode(wanted, skip_special_tokens=False) == text


def test_smollm_reads_each_digit_alone(tmp_path: Path) -> None:
    # transformers knows no such name and reads it like GPT-2; this is llama.cpp's and the model's.
    words: Any = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    wanted = Tokenizer.from_str(trained().to_str())
    wanted.pre_tokenizer = words
    own = tokenizer_of(made(tmp_path, pre="smollm"))
    for text in TEXTS:
        # Words of the book are what both have as special, but for this one.
        if "<think>" not in text:
            assert own.encode(text).ids == wanted.encode(text).ids
    assert [own.decode([each]) for each in own.encode("1234").ids] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("qwen2", False)])
def test_only_llama_3_keeps_words_whole_that_no_merge_makes(
    tmp_path: Path, pre: str, whole: bool
) -> None:
    ids = trained().get_vocab()
    word = next(text for text in ids if text.isascii() and text.isalpha() and len(text) > 2)
    merges = [" ".join(each) for each in json.loads(trained().to_str())["model"]["merges"]]
    left = [merge for merge in merges if merge.replace(" ", "") != word]
    assert len(left) < len(merges)
    own = tokenizer_of(made(tmp_path, pre=pre, merges=left))
    assert (own.encode(word).ids == [ids[word]]) is whole


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"pre": "llama-bpe", "add_bos_token": None}, [1, "x"]),
        ({"pre": "llama-bpe", "add_bos_token": False}, ["x"]),
        ({"pre": "qwen2", "add_bos_token": None}, ["x"]),
        ({"pre": "qwen2", "add_bos_token": True, "add_eos_token": True}, [1, "x", 2]),
        ({"pre": None, "add_eos_token": True}, ["x", 2]),
    ],
)
def test_special_tokens_are_added_as_the_file_says(
    tmp_path: Path, keys: dict[str, Any], wanted: list[Any]
) -> None:
    x = trained().token_to_id("x")
    own = tokenizer_of(made(tmp_path, **keys))
    assert own.encode("x").ids == [x if each == "x" else each for each in wanted]


def test_the_folder_names_ends_and_the_chat_template(tmp_path: Path) -> None:
    folder = made(tmp_path, eot_token_id=0)
    assert eos_token_ids(folder) == (2, 0)
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 0}
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["chat_template"] == TEMPLATE
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    chat = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False
    )
    assert chat == "<|im_start|>hi<|im_end|>"
