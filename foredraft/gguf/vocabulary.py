"""The vocabulary of a GGUF file: tokens, merges and what each special token is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.errors import WeightsError
from foredraft.gguf.metadata import Metadata

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
_KEY = "tokenizer.ggml."
# Ids that end a text: of a text, of a turn, of a message.
_ENDS = ("eos", "eot", "eom")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Byte-level BPE: token i is `tokens[i]`, of kind `kinds[i]`; merges are in their order."""

    tokens: Sequence[str]
    kinds: Sequence[int]
    merges: Sequence[tuple[str, str]]
    pre_tokenizer: str
    # Special tokens' ids by transformers' names for them (bos, eos, unk, pad); some may be missing.
    special: dict[str, int]
    # The ids that end a text, the main one first.
    ends: Sequence[int]
    add_bos: bool | None
    add_eos: bool
    chat_template: str


def read_vocabulary(metadata: Metadata, rows: int) -> Vocabulary:
    """Return the vocabulary of a model with `rows` embeddings; raise WeightsError naming a key."""
    model = metadata.text(f"{_KEY}model")
    if model != "gpt2":
        raise WeightsError(f"the tokenizer {model!r} ({_KEY}model) is not supported, only 'gpt2'")
    tokens = metadata.strings(f"{_KEY}tokens")
    if not 1 <= len(tokens) <= rows:
        raise WeightsError(
            f"{_KEY}tokens has {len(tokens)} tokens, and there are {rows} embeddings"
        )
    known = set(tokens)
    if len(known) != len(tokens):
        raise WeightsError(f"{_KEY}tokens has a token twice")
    kinds = [NORMAL] * len(tokens)
    if f"{_KEY}token_type" in metadata:
        kinds = metadata.integers(f"{_KEY}token_type")
    if len(kinds) != len(tokens):
        raise WeightsError(f"{_KEY}token_type has {len(kinds)} types of {len(tokens)} tokens")
    ids = {
        name: metadata.integer(key, len(tokens) - 1, least=0)
        for name, key in (
            ("bos", f"{_KEY}bos_token_id"),
            ("eos", f"{_KEY}eos_token_id"),
            ("eot", f"{_KEY}eot_token_id"),
            ("eom", f"{_KEY}eom_token_id"),
            ("unk", f"{_KEY}unknown_token_id"),
            ("pad", f"{_KEY}padding_token_id"),
        )
        if key in metadata
    }
    add_bos = f"{_KEY}add_bos_token"
    return Vocabulary(
        tokens=tokens,
        kinds=kinds,
        merges=[_merge(text, known) for text in metadata.strings(f"{_KEY}merges")],
        pre_tokenizer=metadata.text(f"{_KEY}pre", "default"),
        special={name: id_ for name, id_ in ids.items() if name not in ("eot", "eom")},
        ends=tuple(dict.fromkeys(ids[name] for name in _ENDS if name in ids)),
        add_bos=metadata.flag(add_bos, False) if add_bos in metadata else None,
        add_eos=metadata.flag(f"{_KEY}add_eos_token", False),
        chat_template=metadata.text("tokenizer.chat_template", ""),
    )


def _merge(text: str, known: set[str]) -> tuple[str, str]:
    left, _, right = text.partition(" ")
    if not {left, right, left + right} <= known or not left or not right:
        raise WeightsError(
            f"{_KEY}merges has {text[:40]!r}, whose tokens are not in the vocabulary"
        )
    return left, right
