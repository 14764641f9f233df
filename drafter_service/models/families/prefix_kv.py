"""Several sessions in one pass of a transformers model: their cached prefixes, who sees whom.

A batch is padded on the right, cached tokens and new ones each, so that a token's place in it does
not tell its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from drafter_service.models.port import BlockRequest


class PrefixKV:
    """Every layer's keys and values of `slots` sessions' first `tokens` tokens at most."""

    def __init__(self, layers: Sequence[Any], slots: int, tokens: int) -> None:
        self._layers: list[tuple[Tensor, Tensor]] = []
        for layer in layers:
            attention = layer.self_attn
            weight, head_dim = attention.k_proj.weight, attention.head_dim
            shape = (slots, len(weight) // head_dim, tokens, head_dim)
            # Zeros, as what a mask hides is still multiplied by nought.
            keys = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
            self._layers.append((keys, torch.zeros_like(keys)))

    def read(self, requests: Sequence[BlockRequest]) -> Any:
        """Return a DynamicCache of the requests' slots, each as long as the longest start."""
        slots, longest = [r.slot for r in requests], max(r.start for r in requests)
        cache = DynamicCache()
        for at, (keys, values) in enumerate(self._layers):
            cache.update(keys[slots, :, :longest], values[slots, :, :longest], at)
        return cache

    def write(self, requests: Sequence[BlockRequest], cache: Any) -> None:
        """Take over what a pass put behind what read returned: the requests' tokens."""
        longest = max(r.start for r in requests)
        for kept, layer in zip(self._layers, cache.layers, strict=True):
            for mine, found in zip(kept, (layer.keys, layer.values), strict=True):
                for row, r in enumerate(requests):
                    new = found[row, :, longest : longest + len(r.tokens)]
                    mine[r.slot, :, r.start : r.start + len(r.tokens)] = new


@dataclass(frozen=True, slots=True)
class Rows:
    """The new tokens of a batch's requests, and what they and a canvas behind them may see.

    tokens and positions are [requests, new], ends [requests] how long the texts are. Of what is
    seen, cached tokens and then new ones, seen_at are the positions and real is which are no
    padding: [requests, cached + new].
    """

    tokens: Tensor
    positions: Tensor
    ends: Tensor
    seen_at: Tensor
    real: Tensor

    @classmethod
    def of(cls, requests: Sequence[BlockRequest], device: torch.device) -> Rows:
        """Return the rows of a pass over the requests' tokens, behind what PrefixKV.read gave."""
        starts, new = (
            torch.tensor(each, device=device)[:, None]
            for each in ([r.start for r in requests], [len(r.tokens) for r in requests])
        )
        width = max(len(r.tokens) for r in requests)
        padded = [[*r.tokens, *[0] * (width - len(r.tokens))] for r in requests]
        cached = torch.arange(max(r.start for r in requests), device=device)
        offsets = torch.arange(width, device=device)
        # Padding is where the last token is, so that it sees something: it need not be finite else.
        positions = starts + torch.minimum(offsets, new - 1)
        return cls(
            tokens=torch.tensor(padded, device=device),
            positions=positions,
            ends=(starts + new)[:, 0],
            seen_at=torch.cat((cached.expand(len(requests), -1), positions), dim=1),
            real=torch.cat((cached < starts, offsets < new), dim=1),
        )

    def causal(self, window: int) -> dict[str, Tensor]:
        """Return by layer type which rows [requests, 1, new, cached + new] each new one sees."""
        return self._seen_from(self.positions, window)

    def bidirectional(self, window: int, canvas: int) -> dict[str, Tensor]:
        """Return the same for a canvas: [requests, 1, canvas, cached + new + canvas].

        All its slots see all of it, and in sliding layers as much of the text as the first of them.
        """
        masks = {}
        for kind, text in self._seen_from(self.ends[:, None], window).items():
            both = torch.nn.functional.pad(text, (0, canvas), value=True)
            masks[kind] = both.expand(-1, -1, canvas, -1)
        return masks

    def _seen_from(self, positions: Tensor, window: int) -> dict[str, Tensor]:
        distance = positions[:, None, :, None] - self.seen_at[:, None, None, :]
        full = self.real[:, None, None, :] & (distance >= 0)
        return {"full_attention": full, "sliding_attention": full & (distance < window)}
