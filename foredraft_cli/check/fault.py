"""What is wrong with a file, and where in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import ValidationError


class Fault(NamedTuple):
    """A fault: the path of a value in its file, with dots, and what is wrong with it."""

    path: str
    what: str

    def below(self, path: str) -> Fault:
        """Return the fault of a part of a file as one of the whole."""
        return Fault(f"{path}.{self.path}" if self.path else path, self.what)


def schema_faults(error: ValidationError) -> list[Fault]:
    """Return all that a strict model has against its values."""
    return [
        Fault(_dotted(each["loc"]), _told(each["type"], each["msg"]))
        for each in error.errors(include_url=False, include_input=False)
    ]


def _dotted(path: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in path)


def _told(kind: str, message: str) -> str:
    return "unknown key" if kind == "extra_forbidden" else message.removeprefix("Value error, ")
