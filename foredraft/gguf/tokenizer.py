"""tokenizer.json and tokenizer_config.json of a GGUF file's vocabulary.

They are written key by key, not by the tokenizers library: its versions write the same tokenizer
differently, and a drafter knows its target's tokenizer by the file's hash.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

from foredraft.errors import WeightsError
from foredraft.gguf.pre_tokenizers import byte_level, words
from foredraft.gguf.vocabulary import CONTROL, USER_DEFINED, Vocabulary


def tokenizer_json(vocabulary: Vocabulary) -> str:
    """Return tokenizer.json; raise WeightsError naming a pre-tokenizer that is not supported."""
    cut = words(vocabulary.pre_tokenizer)
    add_bos = cut.add_bos if vocabulary.add_bos is None else vocabulary.add_bos
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": cut.whole_words,
        "vocab": {token: id_ for id_, token in enumerate(vocabulary.tokens)},
        "merges": vocabulary.merges,
    }
    text = json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": _added(vocabulary),
            "normalizer": None,
            "pre_tokenizer": cut.pre_tokenizer(),
            "post_processor": _template(vocabulary, {"bos": add_bos, "eos": vocabulary.add_eos}),
            "decoder": byte_level(use_regex=True),
            "model": model,
        },
        ensure_ascii=False,
    )
    if Tokenizer.from_str(text).get_vocab_size() != len(vocabulary.tokens):
        raise WeightsError("tokenizer.ggml.tokens has a special token that cannot be one")
    return text


def _added(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return the tokens that are found in a text before anything else."""
    kinds = (CONTROL, USER_DEFINED)
    return [
        {
            "id": id_,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == CONTROL,
        }
        for id_, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if kind in kinds
    ]


def _template(vocabulary: Vocabulary, wanted: dict[str, bool]) -> dict[str, Any] | None:
    """Return what puts the wanted ones of bos and eos around a text, None for nothing."""
    ids = {name: vocabulary.special[name] for name in wanted if name in vocabulary.special}
    ids = {name: id_ for name, id_ in ids.items() if wanted[name]}
    if not ids:
        return None

    def around(text: str, type_id: int) -> list[dict[str, Any]]:
        bos, eos = (
            [{"SpecialToken": {"id": name, "type_id": type_id}}] if name in ids else []
            for name in ("bos", "eos")
        )
        return [*bos, {"Sequence": {"id": text, "type_id": type_id}}, *eos]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {
            name: {"id": name, "ids": [id_], "tokens": [vocabulary.tokens[id_]]}
            for name, id_ in ids.items()
        },
    }


def tokenizer_config(vocabulary: Vocabulary, max_len: int) -> dict[str, Any]:
    """Return the fields of tokenizer_config.json; max_len is the longest text, in tokens."""
    found: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_len,
        "clean_up_tokenization_spaces": False,
    }
    for name, id_ in vocabulary.special.items():
        found[f"{name}_token"] = vocabulary.tokens[id_]
    if vocabulary.chat_template:
        found["chat_template"] = vocabulary.chat_template
    return found
