"""The files of a model folder, checked against the manifest they came with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from foredraft.errors import WeightsError

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"


def verify_files(model: Path) -> None:
    """Raise WeightsError unless the model folder's files have the hashes of its manifest.

    manifest.json maps relative paths to SHA-256 digests; it lies in the model's folder or one of
    the two above. Without one nothing is checked; files of other folders are not read.
    """
    model = model.resolve()
    if not model.is_dir():
        raise WeightsError(f"there is no model folder {model.name!r}")
    root = next((p for p in (model, *model.parents[:2]) if (p / MANIFEST).is_file()), None)
    if root is None:
        return
    try:
        digests: dict[str, str] = json.loads((root / MANIFEST).read_text())
        items = sorted(digests.items())
    except (ValueError, AttributeError):
        raise WeightsError(f"{MANIFEST} is not a map of paths to digests") from None
    for name, digest in items:
        path = (root / name).resolve()
        if not path.is_relative_to(model):
            continue
        if not path.is_file():
            raise WeightsError(f"{name} is missing")
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise WeightsError(f"{name} is not the file that {MANIFEST} names")


def find_tokenizer(model: Path) -> Path | None:
    """Return the tokenizer.json in the model's folder or beside it, None if there is none."""
    model = model.resolve()
    places = (model / TOKENIZER, model.parent / "tokenizer" / TOKENIZER, model.parent / TOKENIZER)
    return next((path for path in places if path.is_file()), None)
