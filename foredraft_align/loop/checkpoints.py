"""Checkpoints of all training processes: whole or not there, whenever a process is killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from foredraft_align.loop.sharded import ShardedOptimizer


class Checkpoints:
    """The latest checkpoint of a run, a folder with a file of each rank."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self._folder, self._rank, self._world = folder, rank, world

    def save(self, step: int, mine: dict[str, Any], shared: dict[str, Any]) -> None:
        """Store this rank's part and, from rank 0, what all share; then drop older ones."""
        fresh = self._folder / f"step-{step}.new"
        fresh.mkdir(parents=True, exist_ok=True)
        torch.save(mine, fresh / f"rank{self._rank}.pt")
        if self._rank == 0:
            torch.save(shared | {"step": step, "world": self._world}, fresh / "shared.pt")
        self._meet()
        if self._rank == 0:
            fresh.rename(self._folder / f"step-{step}")
            for old in self._folder.glob("step-*"):
                if old.name != f"step-{step}":
                    shutil.rmtree(old)
        self._meet()

    def load(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return this rank's part and the shared one of the latest checkpoint, None if none.

        Raise ValueError where it is of another number of workers.
        """
        whole = [path for path in self._folder.glob("step-*") if path.suffix != ".new"]
        if not whole:
            return None
        latest = max(whole, key=lambda path: int(path.name.removeprefix("step-")))
        shared = torch.load(latest / "shared.pt", weights_only=True)
        if shared["world"] != self._world:
            raise ValueError(
                f"the checkpoint is of {shared['world']} workers, not {self._world}: go on with as "
                "many, or begin afresh"
            )
        return torch.load(latest / f"rank{self._rank}.pt", weights_only=True), shared

    def _meet(self) -> None:
        if self._world > 1:
            dist.barrier()


def store(
    checkpoints: Checkpoints,
    step: int,
    elapsed: float,
    model: nn.Module,
    optimizer: ShardedOptimizer,
) -> None:
    """Store what `restore` needs: trained weights, this rank's optimizers, steps and seconds."""
    weights = {
        name: parameter.detach().clone()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    checkpoints.save(step, {"optimizer": optimizer.state()}, {"model": weights, "elapsed": elapsed})


def restore(
    checkpoints: Checkpoints, model: nn.Module, optimizer: ShardedOptimizer
) -> tuple[int, float]:
    """Restore the latest checkpoint, if there is one; return steps and seconds that are done."""
    found = checkpoints.load()
    if found is None:
        return 0, 0.0
    mine, shared = found
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(shared["model"][name])
    optimizer.load(mine["optimizer"])
    return int(shared["step"]), float(shared["elapsed"])
