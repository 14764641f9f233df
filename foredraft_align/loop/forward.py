"""The drafter's pass over a training batch: texts causally, blocks over what is before them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from drafter_service.models.embedded.block_causal import (
    BlockCausalDLM,
    BlockCausalLayer,
    rotated,
)
from foredraft_align.loop.batches import Batch

_NEVER = -1e9


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
