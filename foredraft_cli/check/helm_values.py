"""Faults of values for a Helm chart, by the chart's own schema. What the chart makes of them is
checked as `helm template` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from foredraft_cli.check.fault import Fault
from foredraft_cli.check.reading import documents

_SCHEMA, _DEFAULTS = "values.schema.json", "values.yaml"


def is_values(file: Path) -> bool:
    """Return whether a file is values of a chart: it lies beside the chart's schema of them."""
    return file.name.startswith("values") and (file.parent / _SCHEMA).is_file()


def faults(values: Mapping[str, Any], folder: Path) -> list[Fault]:
    """Return all faults of values over the defaults of the chart in a folder."""
    [defaults] = documents(folder / _DEFAULTS)
    schema = Draft202012Validator(json.loads((folder / _SCHEMA).read_text()))
    errors = schema.iter_errors(merged(defaults, values))
    return [
        Fault(".".join(map(str, error.absolute_path)), error.message)
        for error in sorted(errors, key=lambda error: error.json_path)
    ]


def merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values over defaults, as Helm has it: maps key by key, null for a key that goes."""
    found = dict(defaults)
    for key, value in values.items():
        below = found.get(key)
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            found[key] = merged(below, value)
        else:
            found[key] = value
    return found
