"""What the training commands have in common: options, and processes that train together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

WORK = Path("build/train")
EMBEDDED = Path("models/embedded")
WorkOption = Annotated[Path, typer.Option(help="Folder of intermediate files.")]
OutOption = Annotated[Path, typer.Option(help="Folder of the finished pair.")]
SeedOption = Annotated[int, typer.Option(help="Seed of every random choice.")]
RanksOption = Annotated[int, typer.Option(help="Processes; 1 uses every core in one process.")]
CompileOption = Annotated[bool, typer.Option("--compile/--no-compile", help="Use torch.compile.")]


def spawn(entry: Callable[..., None], ranks: int, run: object) -> None:
    """Runs `entry(rank, ranks, run, store)` in one process per rank."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(entry, (ranks, run, f"{folder}/store"), nprocs=ranks)
