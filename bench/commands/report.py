"""Where a measurement's table and values go, and the machine that they are from."""

from __future__ import annotations

import json
import math
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
    """Write a file of what was found, on which machine; null where a number is not finite, as the
    bounds are of an interval over too few modules.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    values = _finite(machine() | found)
    file.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def machine() -> dict[str, str]:
    """Return when and on what this is measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {_CORES} cores",
        "python": platform.python_version(),
    }
