"""A configuration whose ingress has its own HTTP port beside Serve's proxy."""

from __future__ import annotations

from deployments.config import ServeFile
from deployments.ingress.direct.config import DirectConfig


def with_direct(file: ServeFile) -> ServeFile:
    """Return the configuration with a direct port, where it has none."""
    entry = file.application
    ingress = entry.args.ingress
    if ingress.direct is not None:
        return file
    ingress = ingress.model_copy(update={"direct": DirectConfig()})
    args = entry.args.model_copy(update={"ingress": ingress})
    return file.model_copy(update={"applications": [entry.model_copy(update={"args": args})]})
