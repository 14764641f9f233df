"""Changes of a served file, one after the other: each new one is deployed under load."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deployments.config import ServeFile, located


class Update(NamedTuple):
    """A change's name, and the whole file with it."""

    name: str
    file: ServeFile


# What changes, and to what: paths of the arguments.
CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("draft lengths, in place", {"orchestrator.adl": {"name": "fixed", "k": 6}}),
    ("two drafters", {"drafter.num_replicas": 2}),
    ("another drafter model", {"drafter.service.model": "COPY"}),
    ("two verifiers", {"verifier.num_replicas": 2}),
    ("an option of the verifier", {"verifier.service.kv_tokens": 16384}),
    ("one verifier", {"verifier.num_replicas": 1}),
    ("an option of the ingress", {"ingress.cors_origins": ["*"]}),
    ("one drafter", {"drafter.num_replicas": 1}),
)


def updates(
    file: ServeFile, folder: Path, chosen: tuple[tuple[str, dict[str, Any]], ...] = CHANGES
) -> Iterator[Update]:
    """Yield a file's changes, each on top of those before it; folder gets the other model."""
    model = located(file.application.args).drafter.service.model
    other = folder / model.name
    values = file.model_dump()
    for name, change in chosen:
        for path, value in change.items():
            if value == "COPY":
                # With what is looked for beside it.
                for each in (model.name, "tokenizer"):
                    shutil.copytree(model.parent / each, folder / each, dirs_exist_ok=True)
                value = other
            _set(values["applications"][0]["args"], path, value)
        yield Update(name, ServeFile.model_validate(values))


def _set(args: dict[str, Any], path: str, value: Any) -> None:
    *keys, last = path.split(".")
    for key in keys:
        args = args[key]
    args[last] = value
