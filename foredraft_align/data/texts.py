"""The training data as it is stored: texts of the target, what it thought of each token, and the
hidden states behind some of its layers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file

TOP = 16
"""Candidates of the target that are stored with each token."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts one after the other; n texts of `total` tokens in all."""

    tokens: npt.NDArray[np.int32]
    """[total]"""
    starts: npt.NDArray[np.int64]
    """[n + 1], where each text begins, and the end of the last"""
    answers: npt.NDArray[np.int64]
    """[n], where each text's answer begins, counted from the text's first token"""
    temperatures: npt.NDArray[np.float32]
    """[n]"""
    top_ids: npt.NDArray[np.int32]
    """[total, TOP], the best candidates for each token of an answer, best first"""
    top_log_probs: npt.NDArray[np.float16]
    """[total, TOP], theirs at temperature 1, whatever the text's own"""

    def __len__(self) -> int:
        return len(self.answers)

    def text(self, index: int) -> npt.NDArray[np.int32]:
        """Return one text's tokens."""
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    def save(self, path: Path, states: npt.NDArray[np.uint16]) -> None:
        """Write a safetensors file; a kill leaves none or a whole one.

        states [total, layers x hidden] are bits of bfloat16, without columns where none are kept.
        """
        fresh = path.with_suffix(".new")
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        save_file(arrays | {"states": np.ascontiguousarray(states)}, fresh)
        fresh.replace(path)

    @classmethod
    def load(cls, path: Path) -> Texts:
        """Read what `save` wrote, but for the states."""
        with safe_open(path, "np") as stored:
            return cls(**{each.name: stored.get_tensor(each.name) for each in fields(cls)})
