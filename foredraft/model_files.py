"""The files of a model folder, checked before anything is loaded from them."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from foredraft.errors import WeightsError

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
# Files that are hashed at once: it takes a core a second a gigabyte.
_HASHED_AT_ONCE = 4


def verify_files(model: Path) -> None:
    """Raise WeightsError unless the model folder's files have the hashes of its manifest.

    manifest.json maps paths relative to itself to SHA-256 digests; it lies in the model's folder or
    one of the two above. Weights and a tokenizer (tokenizer_file) that it does not name are
    refused. Without one nothing is checked; files of other folders are not read.
    """
    model = model.resolve()
    if not model.is_dir():
        raise WeightsError(f"there is no model folder {model.name!r}")
    root = next((p for p in (model, *model.parents[:2]) if (p / MANIFEST).is_file()), None)
    if root is None:
        return
    try:
        digests: dict[str, str] = json.loads((root / MANIFEST).read_text())
        listed = {(root / name).resolve(): digest for name, digest in digests.items()}
    except (ValueError, AttributeError):
        raise WeightsError(f"{MANIFEST} is not a map of paths to digests") from None
    tokenizer = tokenizer_file(model)
    for path, digest in listed.items():
        beside = tokenizer is not None and path.parent == tokenizer.parent
        if not (beside or path.is_relative_to(model)):
            continue
        if not path.is_file():
            raise WeightsError(f"{path.name} is missing")
        if sha256(path) != digest:
            raise WeightsError(f"{path.name} differs from its manifest")
    read = [*model.rglob("*.safetensors")]
    if tokenizer is not None and tokenizer.is_relative_to(root):
        read.append(tokenizer)
    for path in read:
        if path not in listed:
            raise WeightsError(f"{path.name} is not in its manifest")


def expand_compressed(config: Any) -> None:
    """Have transformers expand weights stored as compressed-tensors while it loads them.

    config is a transformers configuration; any other is left as it is.
    """
    stored = getattr(config, "quantization_config", None) or {}
    if stored.get("quant_method") == "compressed-tensors":
        stored["dequantize"] = True


def tokenizer_file(model: Path) -> Path | None:
    """Return the tokenizer.json in the model's folder or beside it, None if there is none."""
    model = model.resolve()
    places = (model / TOKENIZER, model.parent / "tokenizer" / TOKENIZER, model.parent / TOKENIZER)
    return next((path for path in places if path.is_file()), None)


def tokenizer_hash(model: Path) -> str:
    """Return the SHA-256 of the model's tokenizer_file, "" if there is none."""
    found = tokenizer_file(model)
    return sha256(found) if found else ""


def eos_token_ids(model: Path) -> tuple[int, ...]:
    """Return the token ids that end the model's texts, () where its files do not say.

    They are those of generation_config.json, else of config.json, and the tokenizer's, which ends
    what a chat format writes. Raises WeightsError for a file that is no JSON object.
    """
    ids: list[int] = []
    for name in ("generation_config.json", "config.json"):
        found = _object(model / name).get("eos_token_id")
        listed = found if isinstance(found, list) else [found]
        ids = ids or [id_ for id_ in listed if isinstance(id_, int) and id_ >= 0]
    tokenizer = tokenizer_file(model)
    if tokenizer is not None:
        text = _object(tokenizer.parent / "tokenizer_config.json").get("eos_token")
        text = text.get("content") if isinstance(text, dict) else text
        added = _object(tokenizer).get("added_tokens") or () if text else ()
        ids += [token["id"] for token in added if token.get("content") == text]
    return tuple(dict.fromkeys(ids))


def _object(path: Path) -> dict[str, Any]:
    """Return a file's JSON object, an empty one if there is no file; raise WeightsError."""
    try:
        found = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WeightsError(f"{path.name} is no JSON object")
    return found


def weights_hash(model: Path, arithmetic: str = "") -> str:
    """Return a digest of a checkpoint: of config.json and the safetensors files, every byte.

    arithmetic is what else a model's tokens depend on: the type it computes in, the bits of its
    weights.
    """
    digest = hashlib.sha256(arithmetic.encode())
    files = sorted([*model.glob("config.json"), *model.glob("*.safetensors")])
    with ThreadPoolExecutor(_HASHED_AT_ONCE) as threads:
        for path, found in zip(files, threads.map(sha256, files), strict=True):
            digest.update(f"{path.name} {found} ".encode())
    return digest.hexdigest()


def computed_by(weights: str, arithmetic: str) -> str:
    """Return a digest of what weights_hash named and of one more thing that tokens depend on."""
    return hashlib.sha256(f"{weights} {arithmetic}".encode()).hexdigest()


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
