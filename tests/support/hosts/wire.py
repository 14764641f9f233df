"""A wire between two network namespaces that delays, and can be cut.

Linux's own delay (netem) is a module that not every kernel has. Two TAP devices, whose frames a
thread here passes on, need none.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from typing import NamedTuple

TUN = "/dev/net/tun"
# linux/if_tun.h
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME = 1 << 16


class _Frame(NamedTuple):
    due: float
    to: int
    data: bytes


class Wire:
    """Two network devices; what goes into one comes out of the other delay_s later.

    The devices belong to this process, whichever namespaces they are moved to.
    """

    def __init__(self, names: tuple[str, str]) -> None:
        self.names = names
        self.delay_s = 0.0
        self._cut = threading.Event()
        self._ended = threading.Event()
        self._ends = [_tap(name) for name in names]
        self.frames = 0
        self._thread = threading.Thread(target=self._pass_on, name="wire", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Lose every frame from now on, and those on their way."""
        self._cut.set()

    def mend(self) -> None:
        """Lose no more."""
        self._cut.clear()

    def close(self) -> None:
        """Remove both devices."""
        self._ended.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _pass_on(self) -> None:
        left, right = self._ends
        waiting: deque[_Frame] = deque()
        with selectors.DefaultSelector() as ready:
            ready.register(left, selectors.EVENT_READ, right)
            ready.register(right, selectors.EVENT_READ, left)
            while not self._ended.is_set():
                rest_s = waiting[0].due - time.monotonic() if waiting else 0.1
                for key, _ in ready.select(min(max(rest_s, 0), 0.1)):
                    waiting += _read(key.fd, key.data, self.delay_s)
                if self._cut.is_set():
                    waiting.clear()
                while waiting and waiting[0].due <= time.monotonic():
                    _write(waiting.popleft())
                    self.frames += 1


def _read(end: int, to: int, delay_s: float) -> list[_Frame]:
    found: list[_Frame] = []
    while True:
        try:
            data = os.read(end, _FRAME)
        except OSError:
            # Nothing more, or the device is down.
            return found
        found.append(_Frame(time.monotonic() + delay_s, to, data))


def _write(frame: _Frame) -> None:
    # Where the device is down the frame is lost, as on any wire.
    with suppress(OSError):
        os.write(frame.to, frame.data)


def _tap(name: str) -> int:
    end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = _IFF_TAP | _IFF_NO_PI
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", name.encode(), flags))
    return end
