"""The Ray that this process starts or joins: whether one runs, and where its processes live."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

_CONNECT_S = 2.0


def runs_already() -> bool:
    """Return whether a Ray runs that ray.init joins.

    One that was killed leaves the file behind that names it; ray.init would wait for it for
    minutes.
    """
    from ray._private.services import find_bootstrap_address

    if os.environ.get("RAY_ADDRESS"):
        return True
    host, _, port = (find_bootstrap_address(None) or "").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_CONNECT_S):
            return True
    except (OSError, ValueError):
        return False


@contextmanager
def importing_this_code() -> Iterator[None]:
    """Have the workers of a Ray that is connected to within import the code that runs here.

    They look for modules in the driver's working directory first. Where that is a checkout, and
    Foredraft is installed elsewhere, it has the same packages without the compiled library:
    replicas would compute by the slow reference.
    """
    package = Path(__file__).parents[2]
    other = Path.cwd() / package.name
    if not other.is_dir() or other.samefile(package):
        yield
        return
    with chdir(package.parent):
        yield


def started_here() -> bool:
    """Return whether this process started the Ray cluster that it is connected to."""
    from ray._private import worker

    node = worker._global_node
    return node is not None and bool(node.head)


@contextmanager
def group_of_its_own() -> Iterator[None]:
    """Have what is started meanwhile be in another process group than this process.

    Ray starts its processes in the group of who calls it, where a raylet that gets the group's
    SIGTERM kills its workers at once, those with requests under way included. It takes no option
    for this: its processes do so between fork and exec.
    """
    global _apart
    _apart = True
    try:
        yield
    finally:
        _apart = False


def _leave_group() -> None:
    if _apart:
        os.setpgid(0, 0)


_apart = False
os.register_at_fork(after_in_child=_leave_group)


@contextmanager
def no_new_ray() -> Iterator[None]:
    """Have no call start a Ray, as all do by default, where the one that was there has ended."""
    from ray._private import auto_init_hook

    before = auto_init_hook.enable_auto_connect
    auto_init_hook.enable_auto_connect = False
    try:
        yield
    finally:
        auto_init_hook.enable_auto_connect = before


def forget_serve() -> None:
    """Forget the Serve of a Ray that is about to end, without ending it.

    What this process knows of it would be taken for the Serve of the next Ray: both have job 1.
    """
    from ray.serve import context

    context._disconnect()
