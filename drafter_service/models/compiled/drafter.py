"""The embedded drafter behind the DiffusionLM port, its whole pass one call of compiled code."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np

from drafter_service.models.compiled.packed_weights import PackedModel
from drafter_service.models.embedded.block_causal import BlockCausalDLM
from drafter_service.models.embedded.drafter import CacheShape, capabilities
from drafter_service.models.embedded.features import feature_rows
from drafter_service.models.port import BlockRequest
from drafter_service.proposals.lattice import BlockScores
from foredraft_kernels.memory import aligned
from foredraft_kernels.structs import COLUMNS, Request


class NativeDrafter:
    """EmbeddedDrafter's contract on int8 weights, rows quantised one by one, bf16 caches.

    Single-threaded; other Python threads run meanwhile. Raises ValueError for weights that are not
    finite; the model's sizes must be ones that packed.supports, isa one that the CPU supports.
    """

    def __init__(
        self,
        model: BlockCausalDLM,
        cache: CacheShape,
        candidates: int,
        kernels: ctypes.CDLL,
        isa: str,
        features_hash: str = "",
    ) -> None:
        config = model.config
        self.capabilities = capabilities(config, cache, features_hash)
        self._candidates = min(candidates, config.num_scored - 1)
        # Whole panels of keys.
        capacity = -(-self.capabilities.cache_tokens // COLUMNS) * COLUMNS
        self._packed = PackedModel(model, self._candidates, cache.all_slots, capacity)
        self._draft = getattr(kernels, f"fd_draft_{isa}")
        # Pages of an empty array take memory only once they are written.
        size = 2 * config.num_layers * cache.all_slots * config.hidden_size * capacity
        self._keys, self._values = aligned(size), aligned(size)
        # As attention.inl lays them out: both begin with [layers, slots, heads].
        caches = (config.num_layers, cache.all_slots, config.num_heads)
        self._key_panels = self._keys.view(np.uint32).reshape(*caches, capacity // COLUMNS, -1)
        self._value_pairs = self._values.view(np.uint32).reshape(
            *caches, config.head_dim // COLUMNS, capacity // 2, COLUMNS
        )
        self._at_keys, self._at_values = self._keys.ctypes.data, self._values.ctypes.data

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's mask slots (see DiffusionLM.draft).

        Raises ValueError for a request outside the model's or the caches' bounds.
        """
        heads, tokens = (Request * len(requests))(), array("q")
        masks = 0
        for number, r in enumerate(requests):
            self._check(r)
            if r.prefix_slot is not None:
                self._copy(r.prefix_slot, r.slot, r.start)
            sampling = r.sampling
            heads[number] = Request(
                r.slot, r.start, len(r.tokens), r.num_slots, sampling.temperature, sampling.seed
            )
            tokens.extend(r.tokens)
            masks += r.num_slots
        M = self._candidates
        best = np.empty((masks, M), dtype=np.int64)
        log_q = np.empty((masks, M), dtype=np.float32)
        edge = np.empty((masks, M, M), dtype=np.float32)
        width = self.capabilities.features_width
        features = feature_rows(requests, width) if width else None
        failed = self._draft(
            self._packed.address,
            heads,
            len(requests),
            tokens.buffer_info()[0],
            None if features is None else features.ctypes.data,
            self._at_keys,
            self._at_values,
            best.ctypes.data,
            log_q.ctypes.data,
            edge.ctypes.data,
        )
        if failed:
            raise MemoryError("the drafter's pass found no scratch memory")
        if len(requests) == 1:
            return [BlockScores(best, log_q, edge)]
        scores = []
        begin = 0
        for r in requests:
            end = begin + r.num_slots
            scores.append(BlockScores(best[begin:end], log_q[begin:end], edge[begin:end]))
            begin = end
        return scores

    def _copy(self, source: int, to: int, length: int) -> None:
        """Let a slot hold the first tokens of another one."""
        panels, pairs = -(-length // COLUMNS), -(-length // 2)
        self._key_panels[:, to, :, :panels] = self._key_panels[:, source, :, :panels]
        self._value_pairs[:, to, :, :, :pairs] = self._value_pairs[:, source, :, :, :pairs]

    def _check(self, r: BlockRequest) -> None:
        c = self.capabilities
        slots = c.cache_slots + c.branch_slots
        if not (
            0 <= r.slot < slots
            and (r.prefix_slot is None or 0 <= r.prefix_slot < slots)
            and 0 <= r.num_slots <= c.max_mask_slots
            and r.start >= 0
            and r.tokens
            and r.start + len(r.tokens) + r.num_slots <= c.cache_tokens
            and min(r.tokens) >= 0
            and max(r.tokens) < c.vocab_size
        ):
            raise ValueError(
                f"slot {r.slot}, {r.start} + {len(r.tokens)} tokens, {r.num_slots} mask slots:"
                " outside the drafter's bounds"
            )
