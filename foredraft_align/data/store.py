"""All texts of a folder of shards; hidden states are read from the files as they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from foredraft.errors import ConfigError
from foredraft_align.data.texts import Texts


class Text(NamedTuple):
    """One text (see Texts); states [tokens, layers x hidden]."""

    tokens: npt.NDArray[np.int32]
    answer: int
    temperature: float
    top_ids: npt.NDArray[np.int32]
    top_log_probs: npt.NDArray[np.float16]
    states: npt.NDArray[np.uint16]


class Store:
    """The texts of a folder, numbered through its files in the order of their names."""

    def __init__(self, folder: Path) -> None:
        """Raise ConfigError where the folder has none."""
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise ConfigError(f"there are no texts in {folder}; let the target write some first")
        self._shards = [Texts.load(path) for path in paths]
        self._files: list[Any] = [safe_open(path, "np") for path in paths]
        self._places = [
            (shard, index)
            for shard, texts in enumerate(self._shards)
            for index in range(len(texts))
        ]

    def __len__(self) -> int:
        return len(self._places)

    def length(self, index: int) -> int:
        """Return how many tokens a text has."""
        shard, at = self._places[index]
        starts = self._shards[shard].starts
        return int(starts[at + 1] - starts[at])

    def tokens(self, index: int) -> tuple[npt.NDArray[np.int32], int, float]:
        """Return a text's tokens, where its answer begins, and the answer's temperature."""
        shard, at = self._places[index]
        texts = self._shards[shard]
        return texts.text(at), int(texts.answers[at]), float(texts.temperatures[at])

    def text(self, index: int) -> Text:
        """Return one text, its states read from disk."""
        shard, at = self._places[index]
        texts = self._shards[shard]
        begin, end = int(texts.starts[at]), int(texts.starts[at + 1])
        return Text(
            texts.tokens[begin:end],
            int(texts.answers[at]),
            float(texts.temperatures[at]),
            texts.top_ids[begin:end],
            texts.top_log_probs[begin:end],
            self._files[shard].get_slice("states")[begin:end],
        )
