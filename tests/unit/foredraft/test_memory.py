"""What a process has loaded is left out of garbage collections, and garbage is still found."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import gc, weakref
from foredraft.memory import freeze_heap

class Node:
    pass

def loop():
    node = Node()
    node.itself = node
    return weakref.ref(node)

before = loop()
freeze_heap()
assert before() is None
assert gc.get_freeze_count() > 1000 and len(gc.get_objects()) < 1000
assert gc.get_threshold()[0] > 700
after = loop()
gc.collect()
assert after() is None
"""


def test_a_frozen_heap_is_visited_no_more() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
