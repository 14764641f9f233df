"""The state of a run's log while it is written: for the progress bar, from another process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from foredraft_align.loop.train import Progress

_SECONDS = 2.0


def read_log(path: Path, begin: int = 0) -> list[Progress]:
    """Return the steps that a log holds, without its first `begin`; a line half written is none."""
    if not path.is_file():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [Progress(**json.loads(line)) for line in lines[begin:]]


class LogWatch:
    """Reports the steps of a log as they come, while it is entered."""

    def __init__(self, path: Path, report: Callable[[Progress], None]) -> None:
        self._path, self._report = path, report
        self._seen = len(read_log(path))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._read()
        self._read()

    def _read(self) -> None:
        new = read_log(self._path, self._seen)
        self._seen += len(new)
        for progress in new:
            self._report(progress)
