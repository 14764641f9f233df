"""What is started apart is in no process group that this process is in."""

from __future__ import annotations

import os
import subprocess

from deployments.serve.platform import group_of_its_own


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
