"""A checkpoint of a public family behind the DiffusionLM port."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from drafter_service.models.candidates import block_scores
from drafter_service.models.families.attending import Rows, TextAttention
from drafter_service.models.families.cache import HeldPrefixes, Reuse
from drafter_service.models.families.decoder import Decoder
from drafter_service.models.families.dit import Dit
from drafter_service.models.families.family import FamilyModel, read_family
from drafter_service.models.port import BlockRequest, Capabilities
from drafter_service.proposals.lattice import BlockScores


class FamilyDrafter:
    """Feeds of every session's text what cannot be taken from its cached prefix, and the block.

    Several sessions' rows share one forward, each seeing its own. max_mask_slots is the most mask
    slots, max_sessions the most sessions of a pass, max_len the most tokens of one; cache_tokens
    bounds the cached tokens of all. refresh is after how many tokens a fully bidirectional network
    reads a text anew.
    """

    def __init__(
        self,
        network: Decoder | Dit,
        model: FamilyModel,
        num_candidates: int,
        max_mask_slots: int,
        max_sessions: int,
        max_len: int,
        cache_tokens: int,
        refresh: int,
    ) -> None:
        self._network, self._model = network, model
        sizes = model.sizes
        tokens = min(max_len, sizes.max_len)
        self._count = min(num_candidates, sizes.vocab_size - 1)
        kept = Reuse(model.block, refresh)
        empty = network.embed_tokens.weight.new_empty(sizes.kv_shape(0))
        self._prefixes = HeldPrefixes(kept, empty, cache_tokens)
        self.capabilities = Capabilities(
            name=model.family.name,
            vocab_size=sizes.vocab_size,
            max_len=tokens,
            eos=model.eos_token_id,
            max_mask_slots=max_mask_slots,
            prefix_kv=kept.prefix_kv,
            cache_slots=max_sessions,
            cache_tokens=tokens,
            partial_blocks=True,
            mask=model.mask_token_id,
        )

    @torch.inference_mode()
    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's mask slots (see DiffusionLM.draft)."""
        model, logits = self._model, self.logits(requests).float()
        return block_scores(logits, requests, self._count, model.mask_token_id, model.eos_token_id)

    @torch.inference_mode()
    def logits(self, requests: Sequence[BlockRequest]) -> Tensor:
        """Return the logits [slots, vocabulary] that every request's mask slots are read from."""
        reads = [self._prefixes.read(r) for r in requests]
        mask, shift = self._model.mask_token_id, self._model.family.shift
        tokens: list[int] = []
        positions: list[int] = []
        masked: list[float] = []
        wanted: list[int] = []
        for read in reads:
            request, part = read.request, read.part
            filled = request.filled or [-1] * request.num_slots
            text = [*read.text, *(mask if t < 0 else t for t in filled)]
            tokens += text[part.start :]
            positions += range(part.start, part.end)
            masked += [text.count(mask) / len(text)] * part.rows
            first = len(tokens) - request.num_slots - shift
            wanted += range(first, first + request.num_slots)
        device = self._network.embed_tokens.weight.device
        rows = Rows(*(torch.tensor(each, device=device) for each in (tokens, positions, masked)))
        attention = TextAttention([read.part for read in reads], self._model.block, device)
        states = self._network(rows, attention)
        self._prefixes.keep(reads, attention.made())
        logits: Tensor = self._network.lm_head(states[wanted])
        return logits


def load_family(
    folder: Path,
    *,
    family: str | None,
    mask_token_id: int | None,
    dtype: torch.dtype,
    device: str,
    num_candidates: int,
    max_mask_slots: int,
    max_sessions: int,
    max_len: int | None,
    cache_tokens: int,
    refresh: int,
) -> FamilyDrafter:
    """Return the drafter of a folder with config.json and safetensors, in one file or several.

    Raises FileNotFoundError for a missing file and ValueError for one that cannot be used.
    """
    raw = json.loads((folder / "config.json").read_text())
    model = read_family(raw, family, mask_token_id)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder.name} has no safetensors files")
    weights: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in load_file(file, device=device).items():
            # Rotary frequencies follow from the configuration; some checkpoints hold them too.
            if not name.endswith("rotary_emb.inv_freq"):
                weights[model.family.names(name)] = tensor.to(dtype)
    longest = max_len or model.sizes.max_len
    return FamilyDrafter(
        model.network(weights),
        model,
        num_candidates,
        max_mask_slots,
        max_sessions,
        longest,
        cache_tokens,
        refresh,
    )
