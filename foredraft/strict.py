"""The base of every configuration model: frozen, and an unknown key is an error naming it."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from foredraft.errors import ConfigError

M = TypeVar("M", bound="StrictModel")


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys; small pieces of it are passed down."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def parse(model: type[M], values: Any) -> M:
    """Return values as a model; raise ConfigError naming the path of the first bad value."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"]) or "configuration"
        reason = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigError(f"{path}: {reason}", param=path) from None
