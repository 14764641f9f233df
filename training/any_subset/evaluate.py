"""How well an any-subset model fills held-out texts."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foredraft_align.loop.precision import fast_products
from training.any_subset.layouts import HOLE_RATES, MaskRates, Order, with_layouts
from training.any_subset.model import AnySubsetModel

SHARES = (0.95, 0.20)
"""Masked shares of scattered tokens: Table 1's, and about XLNet's own (App. E.2)."""


@torch.inference_mode()
def held_out_nats(model: AnySubsetModel, texts: Tensor, seed: int = 0) -> dict[str, float]:
    """Joint negative log-likelihood (Eq. 2) in nats per masked token of texts [rows, length].

    One figure for each of SHARES, `held_out_95` and `held_out_20`, and `held_out_holes`. Layouts
    have Eq. 4's orders and are the same for every model; under bf16 autocast.
    """
    figures = {
        f"held_out_{share * 100:.0f}": _nats(model, texts, MaskRates(share, share), 0.0, seed)
        for share in SHARES
    }
    return figures | {"held_out_holes": _nats(model, texts, HOLE_RATES, 1.0, seed)}


def _nats(model: AnySubsetModel, texts: Tensor, rates: MaskRates, holes: float, seed: int) -> float:
    batch = with_layouts(texts, np.random.default_rng(seed), rates, Order.LATTICE, holes)
    total = 0.0
    for part in batch.split(4):
        with fast_products(texts.device.type):
            total += float(model(part.tokens, part.order, part.given))
    return total / batch.masked
