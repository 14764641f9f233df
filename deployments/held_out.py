"""The prompts that evaluation uses: code that training never saw, or a file of one's own."""

from __future__ import annotations

import json
from pathlib import Path

from deployments.config import model_path
from foredraft.errors import ConfigError

_FILE = "models/embedded/heldout_prompts.jsonl"


def prompts(count: int, file: Path | None = None) -> list[str]:
    """Return `count` held-out prompts spread evenly over the file, which is ordered by module.

    file is JSON lines with a text each, by default those for the embedded pair. Raise ConfigError
    where it is not.
    """
    try:
        with open(file or model_path(_FILE), encoding="utf-8") as lines:
            texts = [str(json.loads(line)["text"]) for line in lines]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"prompts: {file} is no file of JSON lines with a text", param="prompts"
        ) from None
    count = min(count, len(texts))
    return [texts[i * len(texts) // count] for i in range(count)]
