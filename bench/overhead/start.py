"""What a start takes: python -m bench.overhead.start.

Starts a cluster, Ray included, and stops it, several times. Prints the seconds until it answers
and the CPU seconds that each of its parts has had by then.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.overhead.cpu import cpu_seconds
from deployments.config import EMBEDDED_FILE, ServeFile, read
from deployments.serve.cluster import running

# What used less is in the sum alone.
_LEAST_S = 0.5


def start(file: ServeFile) -> tuple[float, dict[str, float]]:
    """Start and stop the file's cluster; return the seconds until it answered, and CPU seconds."""
    began, before = time.monotonic(), cpu_seconds()
    with running(file):
        seconds, after = time.monotonic() - began, cpu_seconds()
    return seconds, {part: spent - before.get(part, 0.0) for part, spent in after.items()}


def line(seconds: float, spent: dict[str, float]) -> str:
    """Return one start's line."""
    parts = sorted(spent.items(), key=lambda item: -item[1])
    named = ", ".join(f"{part} {used:.1f}" for part, used in parts if used >= _LEAST_S)
    return f"{seconds:5.1f} s; CPU {sum(spent.values()):.1f} s: {named}"


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=EMBEDDED_FILE)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args(args)
    file = read(asked.config)
    found = []
    for _ in range(asked.turns):
        seconds, spent = start(file)
        found.append(seconds)
        print(line(seconds, spent), flush=True)  # noqa: T201
    print(f"median {median(found):.1f} s")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
