"""Converted GGUF files, kept in the user's cache: each is converted once on a machine."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from pathlib import Path

from foredraft.errors import WeightsError
from foredraft.gguf.progress import Progress
from foredraft.model_files import sha256

SUFFIX = ".gguf"
# Part of an entry's name: count it up when the conversion's result changes.
_FORMAT = 1
_MOST_ENTRIES = 4
# What a process that was killed left behind is removed after this time, in seconds.
_ABANDONED_S = 24 * 3600

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return $FOREDRAFT_CACHE, else foredraft in $XDG_CACHE_HOME or in ~/.cache."""
    if own := os.environ.get("FOREDRAFT_CACHE"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "foredraft"


def cached(digest: str) -> Path | None:
    """Return the folder of the GGUF file with this SHA-256, None if it was not converted yet."""
    folder = _entry(digest)
    return folder if (folder / "config.json").is_file() else None


def converted(gguf_file: Path, progress: Progress | None = None) -> Path:
    """Return the folder of a GGUF file, which is converted if it was not yet.

    The least recently used folders beyond the last few are removed then. Raise WeightsError.
    """
    if not gguf_file.is_file():
        raise WeightsError(f"there is no GGUF file {gguf_file}")
    digest = sha256(gguf_file)
    folder = cached(digest)
    if folder is None:
        folder = _entry(digest)
        if progress is None:
            # It takes minutes for a large model, and whoever started it waits.
            log.warning("converting %s to %s; this is done once", gguf_file, folder)
        _convert(gguf_file, digest, progress)
        _evict(folder)
    else:
        with contextlib.suppress(OSError):
            os.utime(folder)
    return folder


def _convert(gguf_file: Path, digest: str, progress: Progress | None) -> None:
    # Only here: what reads a configuration should not have to wait for the gguf package.
    from foredraft.gguf.convert import convert

    try:
        convert(gguf_file, _entry(digest), progress or (lambda done, total: None))
    except WeightsError:
        # Another process may have been faster.
        if cached(digest) is None:
            raise


def _entry(digest: str) -> Path:
    return cache_folder() / "gguf" / f"{digest[:32]}-{_FORMAT}"


def _evict(kept: Path) -> None:
    """Remove the least recently used entries, and what was abandoned half done."""
    with contextlib.suppress(OSError):
        times = {path: path.stat().st_mtime for path in kept.parent.iterdir() if path != kept}
        entries = sorted((path for path in times if path.name[0] != "."), key=times.__getitem__)
        for path in entries[: max(0, len(entries) + 1 - _MOST_ENTRIES)]:
            # Under its own name it would be found while it is half removed.
            gone = path.with_name(f".{path.name}.gone")
            path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        for path, used in times.items():
            if path.name[0] == "." and used < time.time() - _ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)
