"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deployments.config import CHAT_FILE, EMBEDDED_FILE
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
