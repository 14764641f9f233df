"""A backoff n-gram model over token ids, and the ARPA file that KenLM reads it from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NEVER = -99.0
"""An ARPA file's log-probability of <s>, which starts a text and is never predicted."""
LINES = 1 << 16


@dataclass(frozen=True)
class Words:
    """Indices of a model's words: the token ids 0..size-1, then KenLM's <s>, </s> and <unk>.

    A text's end is the tokenizer's own end token, an ordinary word: like <unk>, </s> is never
    counted and stands there because KenLM demands it.
    """

    size: int

    @property
    def begin(self) -> int:
        """<s>"""
        return self.size

    @property
    def count(self) -> int:
        """Number of words; all but <s> can be predicted."""
        return self.size + 3

    @property
    def nothing(self) -> int:
        """What is before the first word of a row."""
        return self.size + 3

    @property
    def base(self) -> int:
        """An n-gram's key is the number that its words' indices are the digits of."""
        return self.size + 4

    @property
    def names(self) -> list[str]:
        """The words in the order of their indices: decimal token ids, <s>, </s>, <unk>."""
        return [*map(str, range(self.size)), "<s>", "</s>", "<unk>"]


def windows(rows: list[Ints], words: Words, length: int) -> Ints:
    """Keys [words of all rows] of the `length` words up to and with each; no window spans rows.

    Raises ValueError if such keys do not fit 64 bits.
    """
    if words.base**length >= 1 << 63:
        raise ValueError(f"{length} words of {words.size} tokens do not fit one key")
    gap = np.full(length - 1, words.nothing, dtype=np.int64)
    stream = np.concatenate([part for row in rows for part in (gap, row)])
    ends = len(stream) - length + 1
    keys = np.zeros(ends, dtype=np.int64)
    for offset in range(length):
        keys *= words.base
        keys += stream[offset : offset + ends]
    return keys[stream[length - 1 :] != words.nothing]


@dataclass(frozen=True)
class Entries:
    """The n-grams of one order: sorted keys, log10 p(last word | others), log10 backoff weight of
    the n-gram as a context (0 where nothing follows it).
    """

    keys: Ints
    log_probs: Floats
    backoffs: Floats

    def find(self, keys: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Indices of the wanted keys, and which of them are there (else the index is any)."""
        if not len(self.keys):
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return at, self.keys[at] == keys


@dataclass(frozen=True)
class BackoffModel:
    """p(w | h) as listed, else backoff(h) p(w | h without its first word); orders[0] lists every
    word.
    """

    words: Words
    orders: list[Entries]


def save_arpa(model: BackoffModel, path: Path) -> None:
    """Writes the model as ARPA text, 7 digits a number."""
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write("\\data\\\n")
        for length, entries in enumerate(model.orders, 1):
            file.write(f"ngram {length}={len(entries.keys)}\n")
        for length in range(1, len(model.orders) + 1):
            file.write(f"\n\\{length}-grams:\n")
            file.writelines(_lines(model, length))
        file.write("\n\\end\\\n")


def _lines(model: BackoffModel, length: int) -> Iterator[str]:
    """One line per n-gram: log10 p, its words, and below the highest order its log10 backoff."""
    names, base, entries = model.words.names, model.words.base, model.orders[length - 1]
    highest = length == len(model.orders)
    for start in range(0, len(entries.keys), LINES):
        part = slice(start, start + LINES)
        places = [entries.keys[part] // base**place % base for place in reversed(range(length))]
        columns = ([names[index] for index in place.tolist()] for place in places)
        rows = zip(
            entries.log_probs[part].tolist(),
            map(" ".join, zip(*columns, strict=True)),
            entries.backoffs[part].tolist(),
            strict=True,
        )
        for log_prob, text, backoff in rows:
            yield (
                f"{log_prob:.7g}\t{text}\n"
                if highest
                else f"{log_prob:.7g}\t{text}\t{backoff:.7g}\n"
            )
