"""Schemathesis with the server's own description: no crash, no answer that is not described."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from deployments.serve.cluster import RunningCluster

CASES = 2000


def test_schemathesis_finds_nothing_in_2000_cases(chat: RunningCluster, tmp_path: Path) -> None:
    """All of its checks but one: rules between fields are no part of a description."""
    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{chat.url}/openapi.json"),
            *("--url", chat.url, "--phases", "coverage", "--seed", "1", "--no-color"),
            *("--exclude-checks", "positive_data_acceptance"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    counted = re.search(r"(\d+) generated, (\d+) passed", found.stdout)
    assert found.returncode == 0 and counted is not None, found.stdout[-4000:]
    generated, passed = map(int, counted.groups())
    assert generated == passed >= CASES
