"""The embedded drafter (block_causal.py) behind the DiffusionLM port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from drafter_service.core.lattice import BlockScores
from drafter_service.model.block_causal import COMMITTED, BlockCausalDLM
from drafter_service.model.port import BlockRequest, Capabilities


@dataclass(frozen=True, slots=True)
class CacheShape:
    """How much is held: `slots` sessions of `tokens` tokens each, mask slots included."""

    slots: int
    tokens: int


class EmbeddedDrafter:
    """Runs BlockCausalDLM for many sessions in one pass over preallocated key-value caches.

    Rows of a session are its new committed tokens, then its mask slots. Both write their keys and
    values behind the cached ones; those of the mask slots are overwritten by the next pass.
    """

    def __init__(
        self, model: BlockCausalDLM, cache: CacheShape, candidates: int, cache_dtype: torch.dtype
    ) -> None:
        config = model.config
        self._model = model
        self._candidates = min(candidates, config.vocab_size - 1)
        tokens = min(cache.tokens, config.max_position_embeddings)
        shape = (config.num_layers, cache.slots, config.num_heads, tokens, config.head_dim)
        # Pages of an empty tensor take memory only once they are written.
        self._keys = torch.empty(shape, dtype=cache_dtype)
        self._values = torch.empty(shape, dtype=cache_dtype)
        self._scale = config.head_dim**-0.5
        self.capabilities = Capabilities(
            name=config.family,
            vocab_size=config.vocab_size,
            max_len=config.max_position_embeddings,
            eos=config.eos_token_id,
            max_block=config.max_block,
            prefix_kv="exact",
            cache_slots=cache.slots,
            cache_tokens=tokens,
        )

    @torch.inference_mode()
    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's mask slots (see DiffusionLM.draft)."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        masks: list[int] = []
        before: list[int] = []
        for r in requests:
            masks.extend(range(len(ids) + len(r.tokens), len(ids) + len(r.tokens) + r.num_slots))
            before.append(r.tokens[-1])
            ids.extend(r.tokens)
            ids.extend([0] * r.num_slots)
            positions.extend(range(r.start, r.start + len(r.tokens) + r.num_slots))
            slots.extend([COMMITTED] * len(r.tokens))
            slots.extend(range(r.num_slots))
        attend = _CachedAttention(self._keys, self._values, requests, self._scale)
        rows = torch.tensor([ids, positions, slots])
        hidden = self._model.forward_rows(rows[0], rows[1], rows[2], attend)
        return self._candidates_of(hidden[torch.tensor(masks, dtype=torch.long)], requests, before)

    def _candidates_of(
        self, hidden: Tensor, requests: Sequence[BlockRequest], before: list[int]
    ) -> list[BlockScores]:
        """Return each request's BlockScores from the states [slots of all requests, hidden]."""
        config, width = self._model.config, self._candidates
        logits = self._model.base_logits(hidden).float()
        logits[:, config.mask_token_id] = -torch.inf
        log_q = torch.log_softmax(logits, dim=-1)
        best, tokens = log_q.topk(width, dim=-1)
        eos = config.eos_token_id
        # EOS takes the place of the least of them where it is not among the best.
        missing = (tokens != eos).all(dim=1)
        tokens[:, -1].masked_fill_(missing, eos)
        best[:, -1] = torch.where(missing, log_q[:, eos], best[:, -1])
        previous = torch.empty_like(tokens)
        previous[1:] = tokens[:-1]
        at = 0
        for r, token in zip(requests, before, strict=True):
            if r.num_slots:
                previous[at] = token
            at += r.num_slots
        edge = self._model.edge_scores(hidden, previous, tokens).float()
        parts = (tokens.numpy(), best.numpy(), edge.numpy())
        ends = np.cumsum([r.num_slots for r in requests])
        return [
            BlockScores(*(part[end - r.num_slots : end] for part in parts))
            for r, end in zip(requests, ends, strict=True)
        ]


class _CachedAttention:
    """block_causal's `attend`: each session's rows against its own cache.

    Committed rows see the tokens up to themselves, mask rows everything of their session.
    """

    def __init__(
        self, keys: Tensor, values: Tensor, requests: Sequence[BlockRequest], scale: float
    ) -> None:
        self._keys, self._values, self._requests, self._scale = keys, values, requests, scale
        self._future = [
            torch.full((n, n + r.num_slots), -torch.inf, dtype=keys.dtype).triu_(1)
            for r in requests
            for n in (len(r.tokens),)
        ]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dtype = self._keys.dtype
        heads_first = [part.to(dtype).transpose(0, 1) for part in (q * self._scale, k, v)]
        out = torch.empty_like(v)
        row = 0
        for r, future in zip(self._requests, self._future, strict=True):
            count = len(r.tokens) + r.num_slots
            end = r.start + count
            queries, new_keys, new_values = (x[:, row : row + count] for x in heads_first)
            keys, values = self._keys[layer, r.slot], self._values[layer, r.slot]
            keys[:, r.start : end] = new_keys
            values[:, r.start : end] = new_values
            scores = torch.bmm(queries, keys[:, :end].transpose(1, 2))
            scores[:, : len(r.tokens), r.start :] += future
            mixed = torch.bmm(torch.softmax(scores, dim=-1), values[:, :end])
            out[row : row + count] = mixed.transpose(0, 1)
            row += count
        return out
