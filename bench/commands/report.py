"""Where a measurement's table and values go, and the machine that they are from."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

# The cores that this process may use, counted before an engine pins its threads; only Linux has it.
_CORES = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
# Not under version control: bench/results holds the summaries that are.
RESULTS = Path("bench/out")

JsonOption = Annotated[Path | None, typer.Option("--json", help="Where to write the values.")]


def report(name: str, table: str, found: dict[str, Any], json_file: Path | None) -> None:
    """Print a table; write what was found, and without a file to write it to the table, too."""
    Console(highlight=False, soft_wrap=True).print(table)
    write(json_file or RESULTS / f"{name}.json", found)
    if json_file is None:
        (RESULTS / f"{name}.md").write_text(table)


def write(file: Path, found: dict[str, Any]) -> None:
    """Write a file of what was found, on which machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(machine() | found, indent=1) + "\n")


def machine() -> dict[str, str]:
    """Return when and on what this is measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {_CORES} cores",
        "python": platform.python_version(),
    }
