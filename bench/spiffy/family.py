"""Families of held-out prompts: graphs calibrated on one are used on the other."""

from __future__ import annotations

from enum import StrEnum


class Family(StrEnum):
    """Where prompts are from: everywhere, Python's standard library, or other packages."""

    ALL = "all"
    STDLIB = "stdlib"
    PACKAGES = "packages"

    def has(self, module: str) -> bool:
        """Whether a held-out module, "csv" or "numpy.polynomial.legendre", is of the family."""
        return self is Family.ALL or (self is Family.PACKAGES) == ("." in module)
