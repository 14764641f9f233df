"""The encoded corpus: the tokens of one of its parts, or of what is held out of it, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foredraft.errors import ConfigError


def encoded(work: Path, part: str) -> npt.NDArray[Any]:
    """Map the tokens of "core", "rest" or "heldout"; raise ConfigError where they are missing."""
    file = work / f"{part}.npy"
    if not file.is_file():
        raise ConfigError(
            f"{file} is missing: run `foredraft train corpus`, then `foredraft train encode`",
            param="work",
        )
    tokens: npt.NDArray[Any] = np.load(file, mmap_mode="r")
    return tokens
