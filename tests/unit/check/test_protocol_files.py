"""The protocol's files against their baseline, by buf: what would break a peer is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from deployments.config import ROOT

BUF = ("npx", "--yes", "@bufbuild/buf@1.75.0")
BREAKING = {
    "a field is gone": ("  uint32 round = 2;\n", ""),
    "a field has another number": ("uint32 round = 2;", "uint32 round = 9;"),
    "a field has another type": ("fixed64 prefix_hash = 4;", "uint64 prefix_hash = 4;"),
    "a field has another name": ("uint32 prefix_len = 3;", "uint32 prefix_length = 3;"),
    "an enum's value is gone": ("  PROTOCOL_VERSION_1 = 1;\n", ""),
}
KEEPING = {
    "nothing": ("", ""),
    "a new field": ("  uint32 round = 2;\n", "  uint32 round = 2;\n  uint32 attempt = 99;\n"),
    "a comment": ("  uint32 round = 2;", "  // Another word.\n  uint32 round = 2;"),
}


@cache
def has_buf() -> bool:
    """Whether npx can run buf; it must where CI is set, as for `make check`."""
    if os.environ.get("CI"):
        return True
    npx = shutil.which("npx")
    return npx is not None and not subprocess.run([*BUF, "--version"], check=False).returncode


def breaks(folder: Path, old: str, new: str) -> str:
    """Return what buf says of the files with a change, "" for nothing."""
    changed = shutil.copytree(ROOT / "proto", folder / "proto")
    file = changed / "foredraft/v1/common.proto"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    command = [*BUF, "breaking", str(changed), "--against", str(ROOT / "proto/baseline.binpb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not done.stdout), done.stderr
    return done.stdout


@pytest.mark.parametrize("change", [*BREAKING, *KEEPING])
def test_only_what_breaks_a_peer_is_refused(tmp_path: Path, change: str) -> None:
    if not has_buf():
        pytest.skip("npx cannot run buf here")
    old, new = (BREAKING | KEEPING)[change]
    assert bool(breaks(tmp_path, old, new)) == (change in BREAKING)
