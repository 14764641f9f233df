"""Faults planted in files that have none."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from foredraft_cli.check.command import examined

DELETED = object()


def changed(values: Any, path: str, value: Any) -> Any:
    """A copy with another value at a path, with dots."""
    whole = copy.deepcopy(values)
    at, *keys = whole, *path.split(".")
    for key in keys[:-1]:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    last = int(keys[-1]) if isinstance(at, list) else keys[-1]
    if value is DELETED:
        del at[last]
    else:
        at[last] = value
    return whole


def assert_found(folder: Path, file: Path, path: str, value: Any, at: str, told: str) -> None:
    """Plant a value at a path of a copy: a fault is found at `at`, with the words `told`."""
    planted = folder / "planted.yaml"
    planted.write_text(yaml.safe_dump(changed(yaml.safe_load(file.read_text()), path, value)))
    found = [fault for _, fault in examined([planted])]
    assert any(fault.path.startswith(at) and told in fault.what for fault in found), found
