"""The any-subset model: two streams of rows over one decoder, and its folder on disk.

Content rows hold tokens; a query row holds the mask token and asks for the token at its position,
which RoPE encodes ("Reviving Any-Subset Autoregressive Models", Sec. 4 and App. D). No content row
sees a query row, so asking never changes what is known. A query row sees itself, which the paper's
does not: it is then an ordinary row of an ordinary decoder.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.corpus.tokenizer import MASK_ID
from training.embedded.target_model import (
    NEVER,
    TargetModel,
    export_target,
    load_target,
    masked_attention,
)


def visible(order: Tensor, given: Tensor) -> Tensor:
    """bool [batch, 2 length, 2 length]: which rows, content before queries, each row sees.

    `order` [batch, length] is each position's place in the generation order, `given` [batch] the
    length m of the prompt, which are the orders below m. A prompt row sees all of the prompt and
    nothing else (App. F.4), a generated row the prompt and generated rows up to itself, a query row
    the content before its order (Eq. 6, which leaves content rows open) and itself. The query
    row of a prompt token sees no content; nothing is asked of it.
    """
    level = order.maximum(given[:, None] - 1)
    rows, keys = level[:, :, None], level[:, None, :]
    own = torch.eye(order.shape[1], dtype=torch.bool, device=order.device).expand_as(keys <= rows)
    content = torch.cat((keys <= rows, torch.zeros_like(own)), dim=2)
    return torch.cat((content, torch.cat((keys < rows, own), dim=2)), dim=1)


class AnySubsetModel(nn.Module):
    """A decoder of texts in any order, with its training loss."""

    def __init__(self, network: TargetModel) -> None:
        super().__init__()
        self.network = network

    def streams(self, tokens: Tensor, order: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """Final states of content and of query rows, [batch, length, hidden] each, by position."""
        n = tokens.shape[1]
        both = torch.cat((tokens, torch.full_like(tokens, MASK_ID)), dim=1)
        hidden = torch.where(visible(order, given), 0.0, NEVER).unsqueeze(1)
        positions = torch.arange(n, device=tokens.device).repeat(2)
        states = self.network.hidden(both, partial(masked_attention, hidden=hidden), positions)
        content, asked = states.split(n, dim=1)
        return content, asked

    def logits(self, tokens: Tensor, order: Tensor, given: Tensor) -> Tensor:
        """Of the token at each position, given those of smaller order: [batch, length, vocab]."""
        asked = self.streams(tokens, order, given)[1]
        return F.linear(asked, self.network.embedding.weight)

    def forward(self, tokens: Tensor, order: Tensor, given: Tensor) -> Tensor:
        """-log p(x_sigma(>=m) | x_sigma(<m)) in nats, summed over the batch (Eq. 2 and 7)."""
        logits = self.logits(tokens, order, given).flatten(0, 1).float()
        nats = F.cross_entropy(logits, tokens.flatten(), reduction="none").view_as(tokens)
        return (nats * (order >= given[:, None])).sum()


def export_any_subset(model: AnySubsetModel, directory: Path) -> None:
    """Writes a decoder's checkpoint as the target is written, whose config.json has any_subset."""
    export_target(model.network, directory, {"any_subset": {"mask_token_id": MASK_ID}})


def load_any_subset(directory: Path, length: int | None = None) -> AnySubsetModel:
    """Reads an exported model in fp32, for another number of positions if `length` is given."""
    network = load_target(directory)
    return AnySubsetModel(with_length(network, length or network.shape.max_positions))


def with_length(network: TargetModel, length: int) -> TargetModel:
    """The same weights for positions below `length`."""
    changed = TargetModel(replace(network.shape, max_positions=length), seed=0)
    changed.load_state_dict(network.state_dict())
    return changed
