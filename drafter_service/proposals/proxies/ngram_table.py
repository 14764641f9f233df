"""A compact trigram table with backoff, read with numpy alone: what static_ngram.py scores by.

Layout of ngram.safetensors, V being the vocabulary size. Contexts of two tokens (u, v) are keyed u
* V + v, sorted; the entries of a context are sorted by token. Absent entries back off: log p(w | u
v) = backoff(u v) + log p(w | v), and in the same way from v to the unigram, which covers every
token.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

FILE_NAME = "ngram.safetensors"
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NgramTable:
    """Log-probabilities are natural. Offsets delimit each context's entries: entries[offsets[i] :
    offsets[i + 1]].
    """

    unigram: FloatArray
    """[V] log p(w)"""
    bigram_offsets: IntArray
    """[V + 1]"""
    bigram_tokens: npt.NDArray[np.uint16]
    bigram_log_probs: FloatArray
    bigram_backoff: FloatArray
    """[V] log of the mass left for the unigram"""
    trigram_keys: IntArray
    """[contexts], sorted"""
    trigram_offsets: IntArray
    """[contexts + 1]"""
    trigram_tokens: npt.NDArray[np.uint16]
    trigram_log_probs: FloatArray
    trigram_backoff: FloatArray
    """[contexts] log of the mass left for the bigram"""

    @property
    def vocab_size(self) -> int:
        """Number of tokens that the table covers."""
        return len(self.unigram)

    def save(self, directory: Path) -> None:
        """Writes the table, log-probabilities as fp16, keys and offsets as int32."""
        narrow = {np.dtype(np.float32): np.float16, np.dtype(np.int64): np.int32}
        arrays = {
            name: value.astype(narrow.get(value.dtype, value.dtype))
            for name, value in vars(self).items()
        }
        directory.mkdir(parents=True, exist_ok=True)
        save_file(arrays, directory / FILE_NAME)

    @classmethod
    def load(cls, directory: Path) -> NgramTable:
        """Reads a table. Raises FileNotFoundError when it is missing, ValueError when its keys are
        not ours.
        """
        path = directory / FILE_NAME
        if not path.is_file():
            raise FileNotFoundError(f"no n-gram table at {path}")
        arrays = load_file(path)
        expected = set(cls.__dataclass_fields__)
        if arrays.keys() != expected:
            raise ValueError(f"{path}: expected {sorted(expected)}, found {sorted(arrays)}")
        wide = {np.dtype(np.float16): np.float32, np.dtype(np.int32): np.int64}
        return cls(
            **{
                name: value.astype(wide.get(value.dtype, value.dtype))
                for name, value in arrays.items()
            }
        )
