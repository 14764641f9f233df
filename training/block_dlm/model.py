"""A block-diffusion language model in SDAR's shape (Cheng et al., 2025), and its training loss.

A text's blocks of L tokens are denoised one after the other. A sequence of training is [clean |
noised], twice the same text: every block is noised once, after clean blocks only.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.block_dlm.noising import Noised
from training.embedded.target_model import (
    CHUNK,
    NEVER,
    TargetModel,
    export_target,
    load_target,
    masked_attention,
)


def visible(length: int, block_length: int) -> Tensor:
    """What each row of [clean | noised] attends to, bool [2 length, 2 length].

    A clean row sees its own block and those before it; a noised one its own noised block and the
    clean blocks before it.
    """
    block = torch.arange(length) // block_length
    before, same = block[None] < block[:, None], block[None] == block[:, None]
    clean = torch.cat((before | same, torch.zeros_like(same)), dim=1)
    return torch.cat((clean, torch.cat((before, same), dim=1)))


class BlockAttention(nn.Module):
    """Attention by `visible`, in chunks that leave out keys that none of their queries sees."""

    def __init__(self, length: int, block_length: int) -> None:
        """Raises ValueError unless a text is a whole number of blocks, and CHUNK, too."""
        if length % block_length or CHUNK % block_length:
            raise ValueError(f"block length: {block_length} divides {length} or {CHUNK} unevenly")
        super().__init__()
        self.length = length
        seen = visible(length, block_length)
        self.spans = []
        for start in range(0, length, CHUNK):
            end = min(start + CHUNK, length)
            noised = torch.arange(length + start, length + end)
            rows = torch.cat((torch.arange(start, end), noised))
            keys = torch.cat((torch.arange(end), noised))
            hidden = torch.where(seen[rows][:, keys], 0.0, NEVER)
            self.register_buffer(f"hidden_{start}", hidden, persistent=False)
            self.spans.append((start, end))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of q, k, v [batch, heads, 2 length, head_dim]."""
        n = self.length
        clean, noised = [], []
        for start, end in self.spans:
            own = slice(n + start, n + end)
            queries = torch.cat((q[:, :, start:end], q[:, :, own]), dim=2)
            keys, values = (torch.cat((x[:, :, :end], x[:, :, own]), dim=2) for x in (k, v))
            hidden = self.get_buffer(f"hidden_{start}")
            mixed = masked_attention(queries, keys, values, hidden)
            clean.append(mixed[:, :, : end - start])
            noised.append(mixed[:, :, end - start :])
        return torch.cat((*clean, *noised), dim=2)


class BlockDLM(nn.Module):
    """A network with its training loss, as one graph."""

    def __init__(self, network: TargetModel, length: int, block_length: int) -> None:
        super().__init__()
        self.network, self.block_length = network, block_length
        self.attention = BlockAttention(length, block_length)
        self.register_buffer("positions", torch.arange(length).repeat(2), persistent=False)

    def forward(self, batch: Noised) -> tuple[Tensor, Tensor]:
        """The loss, 1/t times the cross-entropy of masked slots over all slots (a bound on nats per
        token where t is uniform), and the share of masked slots whose best token is right.
        """
        both = torch.cat((batch.clean, batch.noised), dim=1)
        hidden = self.network.hidden(both, self.attention, self.positions)
        hidden = hidden[:, batch.clean.shape[1] :]
        logits = F.linear(hidden, self.network.embedding.weight).flatten(0, 1).float()
        labels, weight = batch.clean.flatten(), batch.weight.flatten()
        loss = (F.cross_entropy(logits, labels, reduction="none") * weight).mean()
        masked = weight > 0
        right = ((logits.argmax(-1) == labels) & masked).sum() / masked.sum().clamp(min=1)
        return loss, right


def export(network: TargetModel, folder: Path, block_length: int, mask_token: int) -> None:
    """Writes a checkpoint as the target is written, whose config.json has block_diffusion."""
    found = {"block_length": block_length, "mask_token_id": mask_token}
    export_target(network, folder, {"block_diffusion": found})


def load(folder: Path) -> tuple[TargetModel, int, int]:
    """Reads an exported network, its block length and mask token.

    Raises ValueError for a model of another kind.
    """
    found = json.loads((folder / "config.json").read_text()).get("block_diffusion")
    if found is None:
        raise ValueError(f"block_diffusion: {folder.name}'s config.json has none")
    return load_target(folder), int(found["block_length"]), int(found["mask_token_id"])
