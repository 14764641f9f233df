"""A target that is configured as a GGUF file is read from the folder it is converted to."""

from __future__ import annotations

from drafter_service.config import DrafterConfig
from foredraft.gguf.cache import model_folder


def with_target_folder(config: DrafterConfig) -> DrafterConfig:
    """Return the configuration with a folder as its target, if it has one.

    Raise WeightsError for a file that cannot be converted.
    """
    if config.target is None or (folder := model_folder(config.target)) == config.target:
        return config
    return config.model_copy(update={"target": folder})
