"""The clock that all training processes share."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist


def advance(elapsed: float, previous: float, *, distributed: bool) -> tuple[float, float]:
    """Return the elapsed seconds with those since `previous`, and now.

    All processes take rank 0's, so that they stop at the same step.
    """
    now = time.monotonic()
    spent = torch.tensor([now - previous])
    if distributed:
        dist.broadcast(spent, src=0)
    return elapsed + float(spent), now
