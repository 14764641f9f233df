"""The files that a router needs to tokenise for a model, as one archive."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.json",
    "chat_template.jinja",
)


def archived(folder: Path) -> tuple[bytes, str]:
    """Return a ZIP archive of a model folder's tokenizer files, and its SHA-256 in hex digits.

    The same files make the same bytes.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _NAMES:
            if (folder / name).is_file():
                # Without a date: an archive is named by its digest.
                archive.writestr(zipfile.ZipInfo(name), (folder / name).read_bytes())
    found = buffer.getvalue()
    return found, hashlib.sha256(found).hexdigest()
