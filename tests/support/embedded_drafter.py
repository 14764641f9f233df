"""A small random drafter of the embedded family, on torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from drafter_service.models.embedded.block_causal import BlockCausalConfig, BlockCausalDLM
from drafter_service.models.embedded.drafter import CacheShape, EmbeddedDrafter
from drafter_service.models.embedded.fast_torch import FusedBlockCausal
from drafter_service.models.embedded.linear import Linear
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.lattice import BlockScores

CONFIG = BlockCausalConfig(64, 32, 2, 48, edge_rank=8, max_position_embeddings=64, max_block=6)
TEXT = [5, 9, 33, 7, 12, 50, 3, 9, 9, 21]


def model() -> BlockCausalDLM:
    """Return the network, the same each time."""
    torch.manual_seed(0)
    built = BlockCausalDLM(CONFIG)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    built.eval()
    return built


def served(linear: Callable[[torch.Tensor], Linear]) -> EmbeddedDrafter:
    """Return a drafter over the network, its layers made by linear."""
    fused = FusedBlockCausal(model(), linear)
    return EmbeddedDrafter(fused, CacheShape(4, 32), candidates=8, cache_dtype=torch.float32)


def fresh(
    drafter: EmbeddedDrafter, tokens: Sequence[int], num_slots: int, slot: int = 3
) -> BlockScores:
    """Return the scores of a block after tokens that no cache holds."""
    [scores] = drafter.draft([BlockRequest(slot, 0, tokens, num_slots)])
    return scores


def same(a: BlockScores, b: BlockScores) -> None:
    assert a.tokens.tolist() == b.tokens.tolist()
    assert a.log_q == pytest.approx(b.log_q, abs=1e-4)
    assert a.edge == pytest.approx(b.edge, abs=1e-4)
