"""The embedded models' manifest: shows that the files are those that the model card lists."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

MANIFEST = "manifest.json"
MAX_BYTES = 112 * 1024 * 1024


def file_digests(directory: Path) -> dict[str, str]:
    """sha256 of every file below the directory, by relative path, without the manifest itself."""
    paths = sorted(
        path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST
    )
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def write_manifest(directory: Path) -> None:
    """Writes manifest.json. Raises ValueError when the models are too large to be committed."""
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        raise ValueError(f"{directory} holds {size} bytes, more than {MAX_BYTES}")
    (directory / MANIFEST).write_text(json.dumps(file_digests(directory), indent=2) + "\n")
