"""A drafter of our own format in training: texts causally, blocks over what is before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drafter_service.models.embedded.block_causal import (
    BlockCausalConfig,
    BlockCausalDLM,
    BlockCausalLayer,
    rotated,
)
from foredraft_align.drafter.start import drafter_from_drafter, drafter_from_target
from foredraft_align.drafter.student import Wanted
from foredraft_align.loop.batches import Batch
from foredraft_align.loop.cross_entropy import mixed_cross_entropy

_NEVER = -1e9


class BlockCausalStudent:
    """A block-causal drafter with its edge head, as a Student."""

    def __init__(self, model: BlockCausalDLM) -> None:
        self.model = model

    @classmethod
    def from_target(
        cls, config: BlockCausalConfig, target: Path, token_ids: tuple[int, ...], seed: int
    ) -> BlockCausalStudent:
        """Return one that begins as its target; see drafter_from_target."""
        return cls(drafter_from_target(config, target, token_ids, seed))

    @classmethod
    def from_drafter(cls, folder: Path, target: Path, layers: int) -> BlockCausalStudent:
        """Return one that goes on from a drafter; see drafter_from_drafter."""
        return cls(drafter_from_drafter(folder, target, layers))

    @property
    def row_of(self) -> Tensor:
        """int64 [vocab], see Student."""
        return self.model.row_of

    @property
    def num_scored(self) -> int:
        """How many tokens the head scores."""
        return self.model.config.num_scored

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the network's parameters."""
        return self.model.named_parameters()

    def hidden_of_slots(self, batch: Batch, filled: Tensor | None = None) -> Tensor:
        """Return the slots' states, see Student."""
        return hidden_of_slots(self.model, batch, filled)

    def loss(self, hidden: Tensor, previous: Tensor, wanted: Wanted, base_share: float) -> Tensor:
        """Return the loss of slots by themselves and with the edge from the real token before."""
        base = self.model.base_logits(hidden)
        edge = self.model.edge_logits(hidden, previous)
        return mixed_cross_entropy(base, edge, *wanted, base_share)

    def best(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Return the best tokens [n] with the edge from the token before."""
        scores = self.model.base_logits(hidden) + self.model.edge_logits(hidden, previous)
        return self.model.token_ids[scores.argmax(-1)]

    def save(self, folder: Path) -> None:
        """Write what the embedding and head of the target do not hold, matrices in int8 rows."""
        self.model.save(folder)


def hidden_of_slots(model: BlockCausalDLM, batch: Batch, filled: Tensor | None = None) -> Tensor:
    """Return the normalised states [b x c x s, hidden] of a batch's mask slots.

    Slots that are filled, bool [b, c, s], show the text's token instead of a mask.

    The last layer computes keys and values alone of the texts' tokens, as nothing else is read.
    """
    texts, length = batch.tokens.shape
    _, blocks, slots = batch.labels.shape
    own = blocks * slots
    places = batch.anchors[..., None] + torch.arange(slots)
    positions = torch.cat(
        (torch.arange(length).expand(texts, -1), places.view(texts, own)), dim=1
    ).clamp(max=model.config.max_position_embeddings - 1)
    tokens = model.embedding(batch.tokens)
    if model.config.target_layer_ids:
        features = model.fused(batch.states)
        # Of the token before; a text's first has none.
        tokens = tokens + F.pad(features[:, :-1], (0, 0, 1, 0))
    masks = model.mask_slots[:slots].repeat(texts, blocks, 1)
    if model.config.anchored:
        before = (batch.anchors - 1)[..., None].expand(-1, -1, tokens.shape[2])
        masks = masks + tokens.gather(1, before).repeat_interleave(slots, dim=1)
    if filled is not None:
        shown = model.embedding(batch.labels).view(texts, own, -1)
        masks = torch.where(filled.view(texts, own, 1), shown, masks)
    x = torch.cat((tokens, masks), dim=1)
    cos, sin = model.cos[positions].unsqueeze(2), model.sin[positions].unsqueeze(2)
    unseen = torch.arange(length) >= batch.anchors.repeat_interleave(slots, dim=1)[..., None]
    hidden = torch.zeros(unseen.shape).masked_fill_(unseen, _NEVER).unsqueeze(1)
    layers: list[BlockCausalLayer] = list(model.layers)
    for layer in layers:
        q, k, v = layer.qkv(layer.attention_norm(x)).unflatten(2, (3, layer.heads, -1)).unbind(2)
        q, k, v = (each.transpose(1, 2) for each in (rotated(q, cos, sin), rotated(k, cos, sin), v))
        mixed = _of_blocks(q[:, :, length:], k, v, hidden, length, slots)
        if layer is layers[-1]:
            x = x[:, length:]
        else:
            clean = F.scaled_dot_product_attention(
                q[:, :, :length], k[:, :, :length], v[:, :, :length], is_causal=True
            )
            mixed = torch.cat((clean, mixed), dim=2)
        x = x + layer.out(mixed.transpose(1, 2).flatten(2))
        gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
        x = x + layer.down(F.silu(gate) * up)
    normed: Tensor = model.norm(x)
    return normed.flatten(0, 1)


def _of_blocks(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, length: int, slots: int) -> Tensor:
    """Attention of blocks' queries q [b, heads, c x s, d] over the texts' keys, where hidden
    [b, 1, c x s, length] is 0, and over all of their own block.
    """
    scale = q.shape[3] ** -0.5
    own_q, own_k, own_v = (
        each.unflatten(2, (-1, slots)) for each in (q, k[:, :, length:], v[:, :, length:])
    )
    before = q @ k[:, :, :length].transpose(2, 3) * scale + hidden
    own = (own_q @ own_k.transpose(3, 4) * scale).flatten(2, 3)
    weights = torch.cat((before, own), dim=3).softmax(-1)
    within = weights[..., length:].unflatten(2, (-1, slots)) @ own_v
    return weights[..., :length] @ v[:, :, :length] + within.flatten(2, 3)
