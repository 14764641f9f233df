"""Optimizers whose work the training processes share, over flat buffers (ZeRO-1).

Each rank owns half of the parameters. Gradients are summed to their owner, the owner steps, and the
new values are broadcast. One synchronisation per step keeps two ranks usable on a contended
machine, where a two-thread process waits at every operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW

from foredraft_align.loop.muon import Muon


@dataclass(frozen=True)
class Trained:
    """A parameter and whether Muon updates it; the others go to AdamW."""

    parameter: nn.Parameter
    muon: bool

    @property
    def work(self) -> float:
        """Estimated optimizer work: Muon costs about size * shorter side, AdamW the size."""
        shape = self.parameter.shape
        return float(self.parameter.numel()) * (min(shape) if self.muon else 1)


def assign_owners(parameters: list[Trained], world: int) -> list[list[Trained]]:
    """Splits parameters between ranks by estimated work, largest first; the same on every rank."""
    shares: list[list[Trained]] = [[] for _ in range(world)]
    loads = [0.0] * world
    for trained in sorted(parameters, key=lambda each: each.work, reverse=True):
        rank = loads.index(min(loads))
        shares[rank].append(trained)
        loads[rank] += trained.work
    return shares


def flatten(parameters: list[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Makes parameters and their gradients views of two flat fp32 buffers, which it returns."""
    total = sum(parameter.numel() for parameter in parameters)
    device = parameters[0].device if parameters else None
    values, gradients = (torch.zeros(total, device=device) for _ in range(2))
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        values[start:end] = parameter.data.flatten()
        parameter.data = values[start:end].view(parameter.shape)
        parameter.grad = gradients[start:end].view(parameter.shape)
        start = end
    return values, gradients


class ShardedOptimizer:
    """Muon for matrices, AdamW for the embedding and norms, with parameters shared out between
    ranks.
    """

    def __init__(
        self, parameters: list[Trained], lr: float, weight_decay: float, *, distributed: bool
    ) -> None:
        self.distributed = distributed
        self.rank, world = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        shares = assign_owners(parameters, world)
        self.buffers = [flatten([trained.parameter for trained in share]) for share in shares]
        matrices = [trained.parameter for trained in shares[self.rank] if trained.muon]
        others = [trained.parameter for trained in shares[self.rank] if not trained.muon]
        self.optimizers: list[torch.optim.Optimizer] = []
        if matrices:
            self.optimizers.append(Muon(matrices, lr, weight_decay=weight_decay))
        if others:
            self.optimizers.append(
                AdamW(others, lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
            )

    def step(self, lr: float) -> None:
        """Averages gradients over ranks, updates this rank's share with `lr`, shares the result,
        clears gradients.
        """
        if self.distributed:
            for owner, (_, gradients) in enumerate(self.buffers):
                dist.reduce(gradients, dst=owner, op=dist.ReduceOp.SUM)
            self.buffers[self.rank][1].div_(len(self.buffers))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
        if self.distributed:
            for owner, (values, _) in enumerate(self.buffers):
                dist.broadcast(values, src=owner)
        self.clear()

    def clear(self) -> None:
        """Sets all gradients to zero."""
        for _, gradients in self.buffers:
            gradients.zero_()

    def state(self) -> list[dict[str, object]]:
        """State of this rank's optimizers."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load(self, states: list[dict[str, object]]) -> None:
        """Restores what `state` returned on the same rank of the same number of ranks."""
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)
