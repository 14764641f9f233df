"""Changes of a served file, one after the other: each new one is deployed under load."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deployments.config import ServeFile, located

# Its name, and what changes: values at paths of the arguments, or the deployment of which one
# replica is asked to end (SIGTERM).
Change = tuple[str, dict[str, Any] | str]


class Update(NamedTuple):
    """A change's name, the whole file with it, and the deployment of which a replica ends."""

    name: str
    file: ServeFile
    ends: str | None = None


CHANGES: tuple[Change, ...] = (
    ("draft lengths, in place", {"orchestrator.adl": {"name": "fixed", "k": 6}}),
    ("two drafters", {"drafter.num_replicas": 2}),
    ("another drafter model", {"drafter.service.model": "COPY"}),
    ("SIGTERM to a drafter", "drafter"),
    ("two verifiers", {"verifier.num_replicas": 2}),
    ("an option of the verifier", {"verifier.service.kv_tokens": 16384}),
    ("SIGTERM to a verifier", "verifier"),
    ("one verifier", {"verifier.num_replicas": 1}),
    ("an option of the ingress", {"ingress.cors_origins": ["*"]}),
    ("one drafter", {"drafter.num_replicas": 1}),
    ("other draft lengths, in place", {"orchestrator.adl": {"name": "fixed", "k": 4}}),
    ("a proposal, in place", {"orchestrator.proposal": "coupled"}),
    ("two drafters and verifiers", {"drafter.num_replicas": 2, "verifier.num_replicas": 2}),
    ("SIGTERM to a drafter, again", "drafter"),
    ("SIGTERM to a verifier, again", "verifier"),
    ("an option of the drafter", {"drafter.service.max_queue": 512}),
    ("another of the verifier", {"verifier.service.kv_tokens": 24576}),
    ("one drafter, in the other order", {"drafter.num_replicas": 1}),
    ("one verifier, last", {"verifier.num_replicas": 1}),
    ("the ingress as it was", {"ingress.cors_origins": []}),
)


def updates(
    file: ServeFile, folder: Path, chosen: tuple[Change, ...] = CHANGES
) -> Iterator[Update]:
    """Yield a file's changes, each on top of those before it; folder gets the other model."""
    model = located(file.application.args).drafter.service.model
    other = folder / model.name
    values = file.model_dump()
    for name, change in chosen:
        if isinstance(change, str):
            yield Update(name, ServeFile.model_validate(values), change)
            continue
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
