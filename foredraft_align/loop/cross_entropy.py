"""The cross-entropy of sparse soft labels, with its gradient computed beside it.

Some rows at a time, as logits of all rows in fp32 leave every cache several times over.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ROWS = 64


class _MixedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        base: Tensor,
        edge: Tensor,
        rows: Tensor,
        shares: Tensor,
        weight: Tensor,
        base_share: float,
    ) -> Tensor:
        total = torch.zeros(())
        base_gradient, edge_gradient = torch.empty_like(base), torch.empty_like(edge)
        for at in range(0, len(base), _ROWS):
            part = slice(at, at + _ROWS)
            labels = rows[part], shares[part]
            alone = base[part].float()
            both = alone + edge[part].float()
            loss, gradient = _of_rows(both, *labels, weight[part] * (1 - base_share))
            base_loss, more = _of_rows(alone, *labels, weight[part] * base_share)
            total += loss + base_loss
            edge_gradient[part] = gradient
            base_gradient[part] = gradient.add_(more)
        ctx.save_for_backward(base_gradient, edge_gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        base, edge = ctx.saved_tensors
        # In place: a step goes back through its graph once.
        return base.mul_(gradients[0]), edge.mul_(gradients[0]), None, None, None, None


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Tensor, shares: Tensor, weight: Tensor) -> Tensor:
        total, gradient = torch.zeros(()), torch.empty_like(logits)
        for at in range(0, len(logits), _ROWS):
            part = slice(at, at + _ROWS)
            scores = logits[part].float().clone()
            loss, gradient[part] = _of_rows(scores, rows[part], shares[part], weight[part])
            total += loss
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(gradients[0]), None, None, None


def cross_entropy(logits: Tensor, rows: Tensor, shares: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted sum in nats of the cross-entropy of logits [n, scored] with the
    probabilities `shares` of `rows`, both [n, m].
    """
    found: Tensor = _CrossEntropy.apply(logits, rows, shares, weight)
    return found


def mixed_cross_entropy(
    base: Tensor, edge: Tensor, rows: Tensor, shares: Tensor, weight: Tensor, base_share: float
) -> Tensor:
    """Return the weighted sum in nats of base_share x the cross-entropy of logits `base` [n,
    scored] and (1 - base_share) x that of base + edge, with the probabilities `shares` of `rows`,
    both [n, m].
    """
    found: Tensor = _MixedCrossEntropy.apply(base, edge, rows, shares, weight, base_share)
    return found


def _of_rows(logits: Tensor, rows: Tensor, shares: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of some rows, and its gradient in the place of the logits."""
    mass, whole = shares.sum(-1), logits.logsumexp(-1)
    each = whole * mass - (logits.gather(1, rows) * shares).sum(-1)
    gradient = logits.sub_(whole[:, None]).exp_().mul_((mass * weight)[:, None])
    gradient.scatter_add_(1, rows, -shares * weight[:, None])
    return (each * weight).sum(), gradient
