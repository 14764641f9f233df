"""A host of its own network: a namespace with a loopback and one end of a wire."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.hosts.wire import TUN, Wire
from tests.support.waiting import DEADLINE_S

_CLONE_NEWNET = 0x40000000


def why_none() -> str:
    """Return why no such host can be made here, "" if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2: make packages"
    if not Path(TUN).exists():
        return f"no {TUN}"
    probe = f"fdprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    if made.returncode:
        return f"ip netns add: {made.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


class Host:
    """One host: address is its own on the wire."""

    def __init__(self, name: str, address: str, device: str) -> None:
        self.name, self.address = name, address
        _ip("netns", "add", name)
        _ip("link", "set", device, "netns", name)
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
        for each in ("lo", device):
            _ip("-n", name, "link", "set", each, "up")

    def pids(self) -> list[int]:
        """Return the processes of the host, but for this one, which may have entered it."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True
        )
        return [pid for pid in map(int, listed.stdout.split()) if pid != os.getpid()]

    def kill_all(self) -> None:
        """Kill every process of the host; return once they are gone."""
        deadline = time.monotonic() + DEADLINE_S
        while found := self.pids():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes of {self.name} do not end: {found}")
            time.sleep(0.02)

    def close(self) -> None:
        """End the host and all that runs on it."""
        self.kill_all()
        _ip("netns", "del", self.name)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make what this thread connects or starts meanwhile do so from the host."""
        with Path("/proc/thread-self/ns/net").open() as own:
            with Path(f"/run/netns/{self.name}").open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(own.fileno())


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host, Wire]]:
    """Two hosts on one wire; what still runs on them at the end is ended."""
    tag = os.getpid() % 100_000
    wire = Wire((f"fda{tag}", f"fdb{tag}"))
    hosts: list[Host] = []
    try:
        for at, device in enumerate(wire.names):
            hosts.append(Host(device, f"192.0.2.{at + 1}", device))
        yield hosts[0], hosts[1], wire
    finally:
        for host in hosts:
            host.close()
        wire.close()


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> None:
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
