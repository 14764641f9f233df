"""Options that several commands have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from deployments.config import CHAT_FILE, EMBEDDED_FILE, ServeFile
from deployments.ingress.direct.config import DirectConfig
from deployments.pair import served_pair
from foredraft.errors import ConfigError
from foredraft_cli.fetch import target_or_line

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="A Serve YAML file that holds Foredraft.")
]
ServedOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="A Serve YAML file that holds Foredraft; default: SmolLM2-135M-Instruct with a "
        "drafter for it, else the embedded pair.",
    ),
]


def served(config: Path | None) -> Path:
    """Return the file to serve: the one that was asked for, else the chat model's, or the embedded
    pair's where the chat model cannot be had.
    """
    return config or (EMBEDDED_FILE if target_or_line() is None else CHAT_FILE)


def paired(
    config: Path | None, model: Path | None, drafter: Path | None, host: str, port: int, device: str
) -> ServeFile:
    """Return what serves a target with a drafter; raise ConfigError where one is missing."""
    if config is not None:
        raise ConfigError("--config and --model exclude each other", param="config")
    if model is None or drafter is None:
        missing = "model" if model is None else "drafter"
        raise ConfigError(
            f"--{missing} is missing: --model DIR and --drafter DIR go together; `foredraft align` "
            "teaches a drafter for a target",
            param=missing,
        )
    direct = DirectConfig(host=host, port=port)
    return served_pair(model.absolute(), drafter.absolute(), direct, device, os.cpu_count() or 1)
