"""A DFlash checkpoint behind the DiffusionLM port."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from drafter_service.models.candidates import block_scores
from drafter_service.models.families.cache import ContextCache
from drafter_service.models.families.dflash import DFlash, DFlashConfig, read_config
from drafter_service.models.port import BlockRequest, Capabilities
from drafter_service.models.weights import read_embedding
from drafter_service.proposals.lattice import BlockScores
from foredraft.features.fusion import WEIGHTS, Fusion, read_fusion
from foredraft.features.wire import size


class InjectedDrafter:
    """Keeps the keys and values of each session's features; a pass feeds the sessions' blocks.

    Blocks always have the size that the model was trained with; max_mask_slots is the most of its
    masks that are asked for.
    """

    def __init__(
        self,
        model: DFlash,
        config: DFlashConfig,
        fusion: Fusion,
        num_candidates: int,
        max_mask_slots: int,
        max_sessions: int,
    ) -> None:
        self._model, self._config, self._width = model, config, fusion.width
        sizes = config.decoder
        self._count = min(num_candidates, sizes.vocab_size - 1)
        nothing = model.lm_head.weight.new_empty(0)
        self._cache = ContextCache(model.context(nothing.view(0, fusion.width), nothing))
        self.capabilities = Capabilities(
            name="dflash",
            vocab_size=sizes.vocab_size,
            max_len=sizes.max_len,
            eos=config.eos_token_id,
            max_mask_slots=min(max_mask_slots, config.block_size - 1),
            prefix_kv="exact",
            cache_slots=max_sessions,
            cache_tokens=sizes.max_len,
            features_hash=fusion.hash,
            features_width=fusion.width,
            mask=config.mask_token_id,
        )

    @torch.inference_mode()
    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's mask slots (see DiffusionLM.draft)."""
        config, logits = self._config, self.logits(requests).float()
        mask, eos = config.mask_token_id, config.eos_token_id
        return block_scores(logits, requests, self._count, mask, eos)

    @torch.inference_mode()
    def logits(self, requests: Sequence[BlockRequest]) -> Tensor:
        """Cache what features tell; return the logits [slots, vocabulary] of all mask slots."""
        self._inject([r for r in requests if r.features])
        blocks = [r for r in requests if r.num_slots]
        block, head = self._config.block_size, self._model.lm_head
        if not blocks:
            return head.weight.new_empty(0, head.out_features)
        device = head.weight.device
        anchors = [r.start + len(r.tokens) - 1 for r in blocks]
        masks = [self._config.mask_token_id] * (block - 1)
        tokens = torch.tensor([[r.tokens[-1], *masks] for r in blocks], device=device).flatten()
        at = torch.tensor(anchors, device=device)[:, None] + torch.arange(block, device=device)
        contexts = [self._cache.get(r.slot, end) for r, end in zip(blocks, anchors, strict=True)]
        states = self._model(tokens, at.flatten(), contexts).view(len(blocks), block, -1)
        read = [states[i, 1 : 1 + r.num_slots] for i, r in enumerate(blocks)]
        logits: Tensor = head(torch.cat(read))
        return logits

    def _inject(self, requests: Sequence[BlockRequest]) -> None:
        """Cache the keys and values of the requests' features."""
        if not requests:
            return
        weight = self._model.lm_head.weight
        counts = [len(r.features) // size(1, self._width) for r in requests]
        raw = torch.frombuffer(bytearray().join(r.features for r in requests), dtype=torch.bfloat16)
        features = raw.view(-1, self._width).to(weight.device, weight.dtype)
        at = [p for r, n in zip(requests, counts, strict=True) for p in range(r.start, r.start + n)]
        new = self._model.context(features, torch.tensor(at, device=weight.device))
        for r, part in zip(requests, new.split(counts, dim=3), strict=True):
            self._cache.put(r.slot, r.start, part)


def load_injected(
    folder: Path,
    target: Path,
    *,
    dtype: torch.dtype,
    device: str,
    num_candidates: int,
    max_mask_slots: int,
    max_sessions: int,
) -> InjectedDrafter:
    """Return the drafter of a folder with a DFlash checkpoint, for the target in another folder.

    Raises FileNotFoundError for a missing file, ValueError or WeightsError for one that cannot be
    used.
    """
    raw, about = (json.loads((each / "config.json").read_text()) for each in (folder, target))
    config, fusion = read_config(raw, about), read_fusion(folder)
    embedding, head = read_embedding(target, device)
    weights = {"embed_tokens.weight": embedding.to(dtype), "lm_head.weight": head.to(dtype)}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file, device=device).items():
            if name not in WEIGHTS:
                weights[name] = tensor.to(dtype)
    model = DFlash.of(config.decoder, weights)
    return InjectedDrafter(model, config, fusion, num_candidates, max_mask_slots, max_sessions)
