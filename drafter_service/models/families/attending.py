"""A pass's rows and what they see: each session's its own text, whose beginning may be cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""attend(layer, q, k, v) -> mixed values; all are [rows, heads, head_dim], q and k rotated."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a pass: their tokens and positions, and the share of masks in their texts: [n].

    A text's rows that are cached count, too.
    """

    tokens: Tensor
    positions: Tensor
    masked: Tensor


@dataclass(frozen=True, slots=True)
class Part:
    """One session's rows of a pass: those of its text from token `start` to `end`, slots included.

    cached [layers, 2, kv_heads, start, head_dim] are the keys and values of the tokens before.
    """

    start: int
    end: int
    cached: Tensor

    @property
    def rows(self) -> int:
        """The number of rows, at least one."""
        return self.end - self.start


class TextAttention:
    """Attention of a pass's parts, an Attend; keeps the keys and values that the rows made.

    block is the length of attention blocks, each of which sees itself and those before; 0 if every
    row sees its whole text.
    """

    def __init__(self, parts: Sequence[Part], block: int, device: torch.device) -> None:
        self._parts = parts
        self._rows = [part.rows for part in parts]
        self._masks = [visible(part, block, device) for part in parts]
        self._made: list[Tensor] = []

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the values [rows, heads, head_dim] mixed for every row."""
        made = torch.stack((k, v)).transpose(1, 2)
        self._made.append(made)
        mixed = []
        new = made.split(self._rows, dim=2)
        for part, mask, rows, own in zip(
            self._parts, self._masks, q.split(self._rows), new, strict=True
        ):
            keys, values = torch.cat((part.cached[layer], own), dim=2)
            each = F.scaled_dot_product_attention(
                rows.transpose(0, 1)[None],
                keys[None],
                values[None],
                attn_mask=mask,
                enable_gqa=True,
            )
            mixed.append(each[0].transpose(0, 1))
        return torch.cat(mixed)

    def made(self) -> Sequence[Tensor]:
        """Return each part's keys and values [layers, 2, kv_heads, rows, head_dim]."""
        parts: Sequence[Tensor] = torch.stack(self._made).split(self._rows, dim=3)
        return parts


def visible(part: Part, block: int, device: torch.device) -> Tensor | None:
    """Return which tokens [rows, end] of its text each row of a part sees; None if all do all."""
    if not block:
        return None
    blocks = torch.arange(part.end, device=device) // block
    return blocks[part.start :, None] >= blocks[None, :]
