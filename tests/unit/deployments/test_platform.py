"""Where Ray's processes are put, and which code its workers import."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import deployments
from deployments.serve.platform.local_ray import group_of_its_own, importing_this_code


def group_of_a_child() -> int:
    # As Ray starts its own: with code of the parent's between fork and exec.
    child = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: None)
    try:
        return os.getpgid(child.pid)
    finally:
        child.kill()
        child.wait()


def test_a_child_gets_a_group_of_its_own_where_it_is_to() -> None:
    assert group_of_a_child() == os.getpgid(0)
    with group_of_its_own():
        assert group_of_a_child() != os.getpgid(0)
    assert group_of_a_child() == os.getpgid(0)


def test_another_copy_of_the_code_in_the_working_directory_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(deployments.__file__).parents[1]
    monkeypatch.chdir(tmp_path)
    with importing_this_code():
        assert Path.cwd() == tmp_path
    (tmp_path / "deployments").mkdir()
    with importing_this_code():
        assert Path.cwd() == here
    assert Path.cwd() == tmp_path
    monkeypatch.chdir(here)
    with importing_this_code():
        assert Path.cwd() == here
