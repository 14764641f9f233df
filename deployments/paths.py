"""Where the folders and files that a configuration names lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from foredraft.errors import ConfigError
from foredraft.strict import StrictModel

M = TypeVar("M", bound=StrictModel)

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def with_absolute_paths(config: M, places: Sequence[Path], param: str = "") -> M:
    """Return the configuration with every relative path in it found in the first place that has it.

    Raise ConfigError naming the key and all places where no place has it. Absolute paths stay.
    """
    found: dict[str, Any] = {}
    for name in type(config).model_fields:
        value, key = getattr(config, name), f"{param}.{name}" if param else name
        if isinstance(value, Path):
            found[name] = _find(value, places, key)
        elif isinstance(value, StrictModel):
            found[name] = with_absolute_paths(value, places, key)
    return config.model_copy(update=found)


def _find(path: Path, places: Sequence[Path], param: str) -> Path:
    if path.is_absolute():
        return path
    for place in places:
        if (place / path).exists():
            return (place / path).absolute()
    reason = f"{param}: {path} is neither in " + " nor in ".join(str(place) for place in places)
    if _HUB_NAME.fullmatch(str(path)):
        reason += "; models are read from local folders only, download the checkpoint first"
    raise ConfigError(reason, param=param)
