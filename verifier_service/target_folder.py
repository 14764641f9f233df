"""A target that is configured as a GGUF file is served from the folder it is converted to."""

from __future__ import annotations

from foredraft.gguf.cache import SUFFIX, converted
from verifier_service.config import VerifierConfig


def with_target_folder(config: VerifierConfig) -> VerifierConfig:
    """Return the configuration with a folder as its model; the file still names the target.

    Raise WeightsError for a file that cannot be converted.
    """
    if config.model.suffix != SUFFIX or config.model.is_dir():
        return config
    name = config.name or config.model.stem
    return config.model_copy(update={"model": converted(config.model), "name": name})
