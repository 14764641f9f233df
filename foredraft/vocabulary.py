"""A tokenizer as bytes: what each token stands for, and how bytes are written in its tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# What bytes that are no UTF-8 are decoded to, by "surrogateescape".
_STRAY = re.compile("([\udc80-\udcff])")


class Vocabulary:
    """The tokens of a tokenizer.json: byte-level ones, and those that write a space as U+2581.

    spelling[id] holds a token's bytes, of a special token those of its name, of an id that no token
    has none. specials maps special tokens' names to ids. ids maps bytes to the token that has them,
    special ones left out.
    """

    def __init__(self, file: Path) -> None:
        """Raises OSError for a file that cannot be read, ValueError for one that cannot be used."""
        raw = json.loads(file.read_text(encoding="utf-8"))
        try:
            self._tokenizer = Tokenizer.from_str(json.dumps(_bare(raw)))
        except Exception as error:  # noqa: BLE001  # the library raises nothing more precise
            raise ValueError(f"it is no tokenizer: {error}") from None
        spell = _speller(raw)
        added = self._tokenizer.get_added_tokens_decoder()
        names = {id_: name for name, id_ in self._tokenizer.get_vocab().items()}
        self.specials = {token.content: id_ for id_, token in added.items() if token.special}
        self.spelling = [b""] * (max(names) + 1)
        self.ids: dict[bytes, int] = {}
        # A byte's own token is for what no other token has.
        for id_, name in sorted(names.items(), key=lambda each: not _BYTE.fullmatch(each[1])):
            self.spelling[id_] = name.encode() if id_ in added else spell(name)
            if name not in self.specials and self.spelling[id_]:
                self.ids[self.spelling[id_]] = id_

    def write(self, data: bytes) -> list[int]:
        """Return the tokens of data.

        Bytes that are no UTF-8, as at a cut inside a character, are written one by one, and left
        out where the vocabulary has no token for them.
        """
        ids: list[int] = []
        for part in _STRAY.split(data.decode("utf-8", "surrogateescape")):
            if _STRAY.fullmatch(part):
                stray = self.ids.get(part.encode("utf-8", "surrogateescape"))
                ids += [] if stray is None else [stray]
            elif part:
                ids += self._tokenizer.encode(part, add_special_tokens=False).ids
        return ids

    def last_piece(self, tokens: Sequence[int]) -> int:
        """Return how many of a text's last tokens are of its last piece, at least one.

        Pieces, such as words, are what the tokenizer cuts a text into before anything else; tokens
        are the text's last ones, and a piece that began before them counts as one token.
        """
        data = b"".join(self.spelling[token] for token in tokens)
        cutter = self._tokenizer.pre_tokenizer
        pieces = cutter.pre_tokenize_str(data.decode(errors="ignore")) if cutter else []
        start = len(data.decode(errors="ignore")[: pieces[-1][1][0]].encode()) if pieces else 0
        at = len(data)
        for count, token in enumerate(reversed(tokens), start=1):
            at -= len(self.spelling[token])
            if 0 < at <= start:
                return count
        return 1


def spelling(file: Path) -> Sequence[bytes]:
    """Return each token's bytes, by its id; nothing for a tokenizer that does not tell them."""
    try:
        return Vocabulary(file).spelling
    except ValueError:
        return ()


def _bare(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a tokenizer that treats the middle of a text as its beginning: nothing is added."""
    bare = {**raw, "truncation": None, "padding": None, "post_processor": None}
    prepends = [part for part in _parts(raw.get("normalizer")) if part["type"] == "Prepend"]
    if prepends:
        kept = [part for part in _parts(raw["normalizer"]) if part not in prepends]
        bare["normalizer"] = {"type": "Sequence", "normalizers": kept}
    splits = [_unprefixed(part) for part in _parts(raw.get("pre_tokenizer"))]
    if splits:
        bare["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splits}
    return bare


def _unprefixed(part: dict[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "ByteLevel":
            return {**part, "add_prefix_space": False}
        case "Metaspace":
            rest = {key: value for key, value in part.items() if key != "add_prefix_space"}
            return {**rest, "prepend_scheme": "never"}
    return part


def _parts(stage: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield a stage's parts: sequences, which may hold others, are opened."""
    if stage is None:
        return
    for key in ("normalizers", "pretokenizers", "decoders"):
        for part in stage.get(key, ()):
            yield from _parts(part)
    if stage["type"] != "Sequence":
        yield stage


def _speller(raw: dict[str, Any]) -> Callable[[str], bytes]:
    """Return what gives a token's bytes from its name, by the tokenizer's own decoder."""
    kinds = {part["type"] for part in _parts(raw.get("decoder"))}
    if "ByteLevel" in kinds:
        return _byte_level
    if kinds & {"ByteFallback", "Metaspace"}:
        return _with_spaces
    raise ValueError("it is neither byte-level nor writes spaces as U+2581")


def _byte_level(name: str) -> bytes:
    return bytes(_BYTES[letter] for letter in name if letter in _BYTES)


def _with_spaces(name: str) -> bytes:
    byte = _BYTE.fullmatch(name)
    return bytes.fromhex(byte[1]) if byte else name.replace(_SPACE, " ").encode()


def _byte_letters() -> dict[str, int]:
    """Return GPT-2's letters for bytes: printable Latin-1 for itself, U+0100 on for the rest."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(0x100) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(rest)}


_BYTES = _byte_letters()
