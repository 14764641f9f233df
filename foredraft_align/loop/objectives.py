"""What a drafter is trained to predict: soft labels, the real token, each slot's weight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafter_service.models.embedded.block_causal import BlockCausalDLM
from foredraft_align.loop.batches import Batch


@dataclass(frozen=True, slots=True)
class Decaying:
    """A mixture of the target's own distribution and its token, slot j weighing gamma^j.

    A slot counts only where all before it hold, so that the first ones matter most.
    """

    gamma: float = 0.8
    soft_share: float = 0.7
    base_share: float = 0.3
    """of the loss of a slot by itself; the rest is of the slot after the token before it"""


def wanted(model: BlockCausalDLM, batch: Batch, soft_share: float) -> tuple[Tensor, Tensor]:
    """Return the rows of the head [rows, TOP + 1] and the probabilities that a slot should have.

    What the head does not score has none; the target's candidates are renormalised without it.
    """
    ids = torch.cat((batch.top_ids, batch.labels[..., None]), dim=-1).flatten(0, 2)
    rows = model.row_of[ids]
    scored = (rows < model.config.num_scored).float()
    soft = batch.top_log_probs.flatten(0, 2).exp() * scored[:, :-1]
    soft = soft / soft.sum(-1, keepdim=True).clamp(min=1e-6)
    shares = torch.cat((soft * soft_share, scored[:, -1:] * (1 - soft_share)), dim=1)
    return rows.clamp(max=model.config.num_scored - 1), shares


def cross_entropy(logits: Tensor, rows: Tensor, shares: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted sum over logits [n, scored] of the cross-entropy in nats with the
    probabilities `shares` of `rows`, both [n, m].
    """
    each = logits.logsumexp(-1) * shares.sum(-1) - (logits.gather(1, rows) * shares).sum(-1)
    return (each * weight).sum()


def decaying_loss(
    model: BlockCausalDLM, batch: Batch, hidden: Tensor, objective: Decaying
) -> tuple[Tensor, Tensor]:
    """Return the loss to minimise, and the shares of first slots whose best token is the text's
    (by itself, after the real token before it).
    """
    slots = batch.labels.shape[2]
    weight = (objective.gamma ** torch.arange(slots) * batch.inside).flatten()
    weight = weight / weight.sum()
    rows, shares = wanted(model, batch, objective.soft_share)
    base = model.base_logits(hidden)
    edge = base + model.edge_logits(hidden, batch.previous.flatten())
    loss = objective.base_share * cross_entropy(base, rows, shares, weight)
    loss = loss + (1 - objective.base_share) * cross_entropy(edge, rows, shares, weight)
    with torch.no_grad():
        first = rows.view(*batch.labels.shape, -1)[:, :, 0, -1].flatten()
        right = [
            (each.view(-1, slots, each.shape[1])[:, 0].argmax(-1) == first).float().mean()
            for each in (base, edge)
        ]
    return loss, torch.stack(right)
