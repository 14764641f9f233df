"""tokenizer.json and tokenizer_config.json of a GGUF file's vocabulary."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, processors

from foredraft.errors import WeightsError
from foredraft.gguf.pre_tokenizers import words
from foredraft.gguf.vocabulary import CONTROL, USER_DEFINED, Vocabulary


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Return the tokenizer; raise WeightsError naming a pre-tokenizer that is not supported."""
    cut = words(vocabulary.pre_tokenizer)
    ids = {token: id_ for id_, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(models.BPE(ids, list(vocabulary.merges), ignore_merges=cut.whole_words))
    built: Any = tokenizer
    built.pre_tokenizer = cut.pre_tokenizer()
    built.decoder = decoders.ByteLevel()
    add_bos = cut.add_bos if vocabulary.add_bos is None else vocabulary.add_bos
    around = _template(vocabulary, add_bos and "bos" in vocabulary.special)
    if around is not None:
        built.post_processor = around
    tokenizer.add_special_tokens(_of_kind(vocabulary, CONTROL))
    tokenizer.add_tokens(_of_kind(vocabulary, USER_DEFINED))
    if tokenizer.get_vocab_size() != len(vocabulary.tokens):
        raise WeightsError("tokenizer.ggml.tokens has a special token that cannot be one")
    return tokenizer


def _of_kind(vocabulary: Vocabulary, wanted: int) -> list[AddedToken]:
    """Return the tokens of a kind, to be found in a text before anything else."""
    pairs = zip(vocabulary.tokens, vocabulary.kinds, strict=True)
    return [AddedToken(text, normalized=False) for text, kind in pairs if kind == wanted]


def _template(vocabulary: Vocabulary, add_bos: bool) -> Any:
    """Return what puts the special tokens around a text, None for nothing."""
    add_eos = vocabulary.add_eos and "eos" in vocabulary.special
    before, after = "bos:{0} " if add_bos else "", " eos:{0}" if add_eos else ""
    if not before and not after:
        return None
    single = f"{before}$A:{{0}}{after}"
    return processors.TemplateProcessing(
        single=single.format(0),
        pair=f"{single.format(0)} {single.replace('$A', '$B').format(1)}",
        special_tokens=[
            (name, vocabulary.special[name])
            for name, added in (("bos", add_bos), ("eos", add_eos))
            if added
        ],
    )


def tokenizer_config(vocabulary: Vocabulary, max_len: int) -> dict[str, Any]:
    """Return what tokenizer_config.json says; max_len is the longest text, in tokens."""
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
