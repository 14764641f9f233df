"""The checkpoints of training processes on one machine."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn

from foredraft_align.loop.sharded import ShardedOptimizer


def save_rank(
    folder: Path,
    rank: int,
    model: nn.Module,
    optimizer: ShardedOptimizer,
    step: int,
    elapsed: float,
    used: list[int],
) -> None:
    """Writes this rank's checkpoint: its optimizer share and the data position; rank 0 adds the
    model.
    """
    state: dict[str, object] = {
        "optimizer": optimizer.state(),
        "step": step,
        "elapsed": elapsed,
        "used": used,
    }
    if rank == 0:
        state["model"] = {name: value.clone() for name, value in model.state_dict().items()}
    torch.save(state, folder / f"rank{rank}.new")
    os.replace(folder / f"rank{rank}.new", folder / f"rank{rank}.pt")


def load_rank(
    folder: Path, rank: int, model: nn.Module, optimizer: ShardedOptimizer, used: list[int]
) -> tuple[int, float, list[int]]:
    """Restores this rank's checkpoint if there is one. Returns (step, seconds used, data position).

    Raises RuntimeError when the ranks' checkpoints are from different steps (a run killed while it
    was writing).
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{rank}.pt"
    if not path.is_file():
        return 0, 0.0, used
    state = torch.load(path, weights_only=True)
    shared = torch.load(folder / "rank0.pt", weights_only=True)
    if shared["step"] != state["step"]:
        raise RuntimeError(
            f"checkpoints of rank 0 and rank {rank} are from different steps; remove {folder}"
        )
    model.load_state_dict(shared["model"])
    optimizer.load(state["optimizer"])
    return int(state["step"]), float(state["elapsed"]), list(state["used"])
