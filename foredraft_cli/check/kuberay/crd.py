"""Faults of Kubernetes' objects by the CustomResourceDefinitions of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

from foredraft.errors import ConfigError
from foredraft_cli.check.fault import Fault

_PRESERVED = "x-kubernetes-preserve-unknown-fields"
# A definition of KubeRay is a megabyte.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Definitions:
    """The schemas of files with CustomResourceDefinitions, by apiVersion and kind."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._schemas: dict[tuple[str, str], Draft7Validator] = {}
        for file in files:
            for values in _definitions(file):
                self._add(file, values)

    def faults(self, values: Mapping[str, Any]) -> list[Fault]:
        """Return the faults of an object; none where no definition is its own.

        Kubernetes drops unknown fields in silence. Here they are faults.
        """
        schema = self._schemas.get((str(values.get("apiVersion")), str(values.get("kind"))))
        if schema is None:
            return []
        errors = sorted(schema.iter_errors(values), key=lambda error: error.json_path)
        return [
            Fault(".".join(map(str, error.absolute_path)), f"by its definition: {error.message}")
            for error in errors
        ]

    def _add(self, file: Path, values: Any) -> None:
        try:
            spec = values["spec"]
            for version in spec["versions"]:
                key = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                schema = version["schema"]["openAPIV3Schema"]
                # Kubernetes' own, whatever the definition has.
                schema["properties"]["metadata"] = {"type": "object"}
                self._schemas[key] = Draft7Validator(closed(schema))
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{file} has no CustomResourceDefinition: {error!r}") from None


def closed(schema: Any) -> Any:
    """Return a schema that refuses the fields which Kubernetes would drop."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items() if key != "properties"}
    if isinstance(properties := schema.get("properties"), dict):
        found["properties"] = {name: closed(each) for name, each in properties.items()}
        if "additionalProperties" not in schema and not schema.get(_PRESERVED):
            found["additionalProperties"] = False
    return found


def _definitions(file: Path) -> list[Any]:
    try:
        with file.open() as text:
            found = [each for each in yaml.load_all(text, _Loader) if each is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    if not found:
        raise ConfigError(f"{file} has no CustomResourceDefinition")
    return found
