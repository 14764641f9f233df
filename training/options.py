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
DeviceOption = Annotated[str, typer.Option(help="Device of a single process: cpu, or cuda.")]
CheckpointOption = Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)]
CompileOption = Annotated[bool, typer.Option("--compile/--no-compile", help="Use torch.compile.")]


def checked_device(device: str, ranks: int) -> str:
    """The device. Raises typer.BadParameter if it is not there, or not for several processes."""
    import torch

    if device not in ("cpu", "cuda"):
        raise typer.BadParameter(f"--device: expected cpu or cuda, not {device}")
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("--device: torch finds no CUDA device here")
    if device == "cuda" and ranks > 1:
        raise typer.BadParameter(f"--device: cuda takes --ranks 1, not {ranks}")
    return device


def spawn(entry: Callable[..., None], ranks: int, run: object) -> None:
    """Runs `entry(rank, ranks, run, store)` in one process per rank."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(entry, (ranks, run, f"{folder}/store"), nprocs=ranks)
