"""The embedded drafter (block_causal.py, fused.py) on torch behind the DiffusionLM port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from drafter_service.models.candidates import candidates
from drafter_service.models.embedded.block_causal import BlockCausalConfig
from drafter_service.models.embedded.fast_torch import FusedBlockCausal
from drafter_service.models.embedded.features import LAG
from drafter_service.models.port import BlockRequest, Capabilities
from drafter_service.proposals.lattice import BlockScores


@dataclass(frozen=True, slots=True)
class CacheShape:
    """How much is held: `slots` sessions of `tokens` tokens each, mask slots included, and
    `branches` blocks that share a session's prefix.
    """

    slots: int
    tokens: int
    branches: int = 0

    @property
    def all_slots(self) -> int:
        """The number of slots, branches' included."""
        return self.slots + self.branches


def capabilities(
    config: BlockCausalConfig, cache: CacheShape, features_hash: str = ""
) -> Capabilities:
    """Return what a model of the family can do with such a cache; features_hash names those that
    it reads, if any.
    """
    return Capabilities(
        name=config.family,
        vocab_size=config.vocab_size,
        max_len=config.max_position_embeddings,
        eos=config.eos_token_id,
        max_mask_slots=config.max_block,
        prefix_kv="exact",
        cache_slots=cache.slots,
        cache_tokens=min(cache.tokens, config.max_position_embeddings),
        features_hash=features_hash,
        features_width=config.hidden_size if features_hash else 0,
        features_lag=LAG if features_hash else 0,
        mask=config.mask_token_id,
        branch_slots=cache.branches,
    )


class EmbeddedDrafter:
    """Runs the embedded family for many sessions in one pass over preallocated key-value caches.

    Rows of a session are its new committed tokens, then its mask slots. Both write their keys and
    values behind the cached ones; those of the mask slots are overwritten by the next pass.
    """

    def __init__(
        self,
        model: FusedBlockCausal,
        cache: CacheShape,
        candidates: int,
        cache_dtype: torch.dtype,
        features_hash: str = "",
    ) -> None:
        config = model.config
        self._model = model
        self._candidates = min(candidates, config.num_scored - 1)
        self.capabilities = replace(
            capabilities(config, cache, features_hash), partial_blocks=not features_hash
        )
        tokens = self.capabilities.cache_tokens
        shape = (config.num_layers, cache.all_slots, config.num_heads, tokens, config.head_dim)
        # Pages of an empty tensor take memory only once they are written.
        self._keys = torch.empty(shape, dtype=cache_dtype)
        self._values = torch.empty(shape, dtype=cache_dtype)

    @torch.inference_mode()
    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's mask slots (see DiffusionLM.draft)."""
        for r in requests:
            if r.prefix_slot is not None:
                for cache in (self._keys, self._values):
                    cache[:, r.slot, :, : r.start] = cache[:, r.prefix_slot, :, : r.start]
        states = self._model.forward(requests, self._keys, self._values)
        config = self._model.config
        log_q, tokens = candidates(
            self._model.logits(states),
            requests,
            self._candidates,
            config.mask_token_id,
            config.eos_token_id,
        )
        previous = torch.empty_like(tokens)
        previous[1:] = tokens[:-1]
        ends = list(accumulate(r.num_slots for r in requests))
        for r, end in zip(requests, ends, strict=True):
            # The rows of a block's first slot are all for the last token of its prefix.
            previous[end - r.num_slots : end][:1] = r.tokens[-1]
        edge = self._model.edges(states, previous, tokens)
        parts = (tokens.numpy(), log_q.numpy(), edge.numpy())
        return [
            BlockScores(*(part[end - r.num_slots : end] for part in parts))
            for r, end in zip(requests, ends, strict=True)
        ]
