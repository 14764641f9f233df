"""Prints docs/configuration.md: every key of the YAML file, from the configuration models."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen, MultipleOf
from pydantic.fields import FieldInfo

from deployments.config import ServeFile
from foredraft.strict import StrictModel

HEAD = """# Configuration

One strict YAML file configures everything; the file is a Ray Serve config.
[`deployments/smollm2.yaml`](../deployments/smollm2.yaml) is the one that `foredraft serve` and
`foredraft demo` read by default, [`deployments/local.yaml`](../deployments/local.yaml) where its
target cannot be fetched; `--config FILE` names another. An unknown key, a value of a wrong type and
a value out of bounds are errors that name the key. A relative path is looked for in the folder of
the file, then among the files that come with Foredraft (`models/embedded/...`), then among fetched
models (`SmolLM2-135M-Instruct`).
`python -m drafter_service --config FILE`, `python -m verifier_service --config FILE` and
`python -m denoiser_service --config FILE` take the keys of `drafter.service`, of `verifier.service`
and of `denoiser.service` alone.

This page is generated from the configuration models: `make docs`.
"""

Model = type[StrictModel]


def models_of(kind: Any) -> list[Model]:
    """Return the configuration models that a type names, in its order."""
    if isinstance(kind, type) and issubclass(kind, StrictModel):
        return [kind]
    return [model for inner in get_args(kind) for model in models_of(inner)]


def sections(model: Model, path: str, seen: set[Model]) -> Iterator[str]:
    """Yield a model's section, then those of the models below it that were not described yet."""
    seen.add(model)
    yield section(model, path)
    for name, field in model.model_fields.items():
        alternatives = models_of(field.annotation)
        for inner in alternatives:
            if inner not in seen:
                key = f"{path}.{name}" if path else name
                yield from sections(inner, key.replace("applications.args.", ""), seen)


def section(model: Model, path: str) -> str:
    """Return a model's heading, its docstring and the table of its fields."""
    label = _label(model)
    title = f"`{path}`{label}" if path else "The file"
    lines = [f"## {title}", "", inspect.cleandoc(model.__doc__ or ""), ""]
    lines += ["| key | type | default | bounds | meaning |", "|---|---|---|---|---|"]
    lines += [row(name, field) for name, field in model.model_fields.items()]
    return "\n".join([*lines, ""])


def _label(model: Model) -> str:
    """Return what tells a model from others at its key, "" where there are none."""
    for name in ("name", "kind"):
        field = model.model_fields.get(name)
        if field and get_origin(field.annotation) is Literal and not field.is_required():
            return f" with `{name}: {field.default}`"
    return ""


def row(name: str, field: FieldInfo) -> str:
    """Return one field as a row of a table."""
    nested = models_of(field.annotation)
    shown = "below" if nested else type_name(field.annotation)
    cells = (f"`{name}`", shown, default(field), bounds(field.metadata), field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def type_name(kind: Any) -> str:
    """Return a type in the words of a YAML file."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = bounds(inner[1:])
        return type_name(inner[0]) + (f" {limits}" if limits else "")
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (list, tuple):
        return f"list of {type_name(inner[0])}"
    if inner:
        known = [type_name(one) for one in inner if one is not type(None)]
        return " or ".join([*known, "null"] if type(None) in inner else known)
    if issubclass(kind, Enum):
        return " or ".join(f"`{one.value}`" for one in kind)
    return {int: "integer", float: "number", str: "text", bool: "boolean", Path: "path"}[kind]


def default(field: FieldInfo) -> str:
    """Return a field's default as a YAML file would have it, "required" where there is none."""
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        return "null"
    if isinstance(value, StrictModel):
        kind = type(value).model_fields.get("name")
        return f"`name: {kind.default}`" if kind and get_origin(kind.annotation) is Literal else ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    if isinstance(value, Enum):
        value = value.value
    return f"`{value}`" if value != "" else "empty"


def bounds(metadata: Any) -> str:
    """Return the limits among a field's metadata."""
    found = []
    for item in metadata:
        match item:
            case Ge(ge=limit):
                found.append(f"≥ {limit}")
            case Gt(gt=limit):
                found.append(f"> {limit}")
            case Le(le=limit):
                found.append(f"≤ {limit}")
            case Lt(lt=limit):
                found.append(f"< {limit}")
            case MultipleOf(multiple_of=factor):
                found.append(f"a multiple of {factor}")
            case MinLen(min_length=count):
                found.append(f"at least {count}")
            case MaxLen(max_length=count):
                found.append(f"at most {count}")
            case _ if pattern := getattr(item, "pattern", None):
                found.append(f"`{pattern}`")
    return ", ".join(found)


if __name__ == "__main__":
    sys.stdout.write("\n".join([HEAD, *sections(ServeFile, "", set())]))
