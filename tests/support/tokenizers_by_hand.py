"""Tokenizers small enough to follow by hand, and two that are trained differently on one text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

EOS = "<|end|>"
BOOK = (
    "def mean(values):\n    return sum(values) / len(values)\n\n\n"
    "def naïve(größe):  # drei Wörter — 価値 😀\n    return größe.mean(values)\n"
)


def saved(tokenizer: Tokenizer, folder: Path, eos: str = EOS) -> Path:
    """Write tokenizer.json and what tells its end; return the former's path."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
    return folder / "tokenizer.json"


def by_hand(tokens: Sequence[str], eos: str = EOS) -> Tokenizer:
    """Byte-level BPE: eos is 0, then tokens in this order, each merged from two before it.

    No byte has a token but those that are named, in GPT-2's letters.
    """
    vocab = {token: id_ for id_, token in enumerate([eos, *tokens])}
    merges = [
        next((token[:cut], token[cut:]) for cut in range(1, len(token)) if _both(token, cut, vocab))
        for token in tokens
        if len(token) > 1
    ]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.add_special_tokens([eos])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _both(token: str, cut: int, vocab: dict[str, int]) -> bool:
    return token[:cut] in vocab and token[cut:] in vocab


def trained(pattern: str, size: int, eos: str = EOS) -> Tokenizer:
    """Byte-level BPE over BOOK, cut into pieces by a pattern; every byte has a token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[eos],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([BOOK], trainer)
    return tokenizer


def with_spaces() -> Tokenizer:
    """As Llama's: a space is U+2581 and comes before every text, bytes have tokens of their own."""
    names = [
        EOS,
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        "a",
        "b",
        "\u2581a",
    ]
    vocab = {name: id_ for id_, name in enumerate(names)}
    tokenizer = Tokenizer(
        models.BPE(vocab, [("\u2581", "a")], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.add_special_tokens([EOS, "<unk>"])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def byte_tokenizer() -> Tokenizer:
    """Every byte is one token, so any character outside ASCII is split."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


DRAFTERS_PATTERN = r"\n+[ \t]*| ?\w+| ?[^\s\w]+|[^\S\n]+"
TARGETS_PATTERN = r"\s|[^\s]{1,6}"

# The drafter's tokens and the target's; "Ġ" is a space, "Ã" and "©" are the two bytes of "é".
END, A, B, C, AB, ABC, SPACE, SPACE_A, E1, E2, E = range(11)
DRAFTER = ["a", "b", "c", "ab", "abc", "Ġ", "Ġa", "Ã", "©", "Ã©"]
T_END, T_C, T_B, T_A, T_BC, T_SPACE, T_E1, T_E2 = range(8)
TARGET = ["c", "b", "a", "bc", "Ġ", "Ã", "©"]
