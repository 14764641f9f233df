"""How text is cut into words before BPE, by llama.cpp's name for it (`tokenizer.ggml.pre`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foredraft.errors import WeightsError

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3, _QWEN2 = _WORDS % "{1,3}", _WORDS % ""


@dataclass(frozen=True, slots=True)
class Words:
    """A way of cutting: by GPT-2's expression where `split` is empty."""

    split: str = ""
    # Each digit is a word of its own.
    digits: bool = False
    # A word that is a token is that token, whatever the merges make of it.
    whole_words: bool = False
    # The beginning-of-sequence token is added unless the file has it otherwise.
    add_bos: bool = False

    def pre_tokenizer(self) -> dict[str, Any]:
        """Return its part of tokenizer.json."""
        spell = byte_level(use_regex=not self.split)
        if self.split:
            pattern = {"Regex": self.split}
            first = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        elif self.digits:
            first = {"type": "Digits", "individual_digits": True}
        else:
            return spell
        return {"type": "Sequence", "pretokenizers": [first, spell]}


def byte_level(*, use_regex: bool) -> dict[str, Any]:
    """Return what spells bytes as characters; use_regex cuts by GPT-2's expression before."""
    spelling = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return spelling | {"use_regex": use_regex}


_GPT2 = Words()
_DIGITS = Words(digits=True)
_LLAMA = Words(_LLAMA3, whole_words=True, add_bos=True)
_QWEN = Words(_QWEN2)

# A file without a name was written before there were names; it is read like "default".
WORDS = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "codeshell": _DIGITS,
    "llama3": _LLAMA,
    "llama-v3": _LLAMA,
    "llama-bpe": _LLAMA,
    "falcon3": _LLAMA,
    "dbrx": Words(_LLAMA3),
    "smaug-bpe": Words(_LLAMA3),
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
}


def words(name: str) -> Words:
    """Return the way of cutting of a name; raise WeightsError naming one that is not known."""
    found = WORDS.get(name)
    if found is None:
        raise WeightsError(f"the pre-tokenizer {name!r} (tokenizer.ggml.pre) is not supported")
    return found
