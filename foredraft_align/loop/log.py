"""What a training writes of each step, as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


class StepLog:
    """A file of steps' figures; those after the checkpoint that a run goes on from are dropped."""

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.is_file() else []
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        path.write_text("".join(f"{line}\n" for line in kept))

    def add(self, figures: Mapping[str, object]) -> None:
        """Write one step's figures, `step` among them."""
        with self._path.open("a") as file:
            file.write(json.dumps(figures) + "\n")
