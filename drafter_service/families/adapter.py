"""A checkpoint of a public family behind the DiffusionLM port."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from drafter_service.core.lattice import BlockScores
from drafter_service.families.decoder import Decoder
from drafter_service.families.dit import Dit
from drafter_service.families.family import FamilyModel, read_family
from drafter_service.model.candidates import block_scores
from drafter_service.model.port import BlockRequest, Capabilities


class FamilyDrafter:
    """Feeds every block's whole prefix: what follows a bidirectional prefix changes all of it.

    Several sessions' rows share one forward, each seeing its own. max_block is the most mask slots,
    max_sessions the most sessions of a pass, max_len the most tokens of one.
    """

    def __init__(
        self,
        network: Decoder | Dit,
        model: FamilyModel,
        num_candidates: int,
        max_block: int,
        max_sessions: int,
        max_len: int,
    ) -> None:
        self._network, self._model = network, model
        sizes = model.sizes
        tokens = min(max_len, sizes.max_len)
        self._count = min(num_candidates, sizes.vocab_size - 1)
        self.capabilities = Capabilities(
            name=model.family.name,
            vocab_size=sizes.vocab_size,
            max_len=tokens,
            eos=model.eos_token_id,
            max_block=max_block,
            prefix_kv="none",
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

    def logits(self, requests: Sequence[BlockRequest]) -> Tensor:
        """Return the logits [slots, vocabulary] that every request's mask slots are read from."""
        tokens: list[int] = []
        positions: list[int] = []
        owners: list[int] = []
        read: list[int] = []
        for owner, r in enumerate(requests):
            filled = r.filled or [-1] * r.num_slots
            first = len(tokens) + len(r.tokens) - self._model.family.shift
            read += range(first, first + r.num_slots)
            tokens += [*r.tokens, *(self._model.mask_token_id if t < 0 else t for t in filled)]
            positions += range(len(r.tokens) + r.num_slots)
            owners += [owner] * (len(r.tokens) + r.num_slots)
        device = self._network.embed_tokens.weight.device
        ids, at, owner_of = (
            torch.tensor(each, device=device) for each in (tokens, positions, owners)
        )
        states = self._network(ids, at, visible(at, owner_of, self._model.block))
        logits: Tensor = self._network.lm_head(states[read])
        return logits


def visible(positions: Tensor, owners: Tensor, block: int) -> Tensor:
    """Return which rows [n, n] each row sees: its own text's, up to the end of its block if any."""
    own = owners[:, None] == owners[None, :]
    if not block:
        return own
    blocks = positions // block
    return own & (blocks[:, None] >= blocks[None, :])


def load_family(
    folder: Path,
    *,
    family: str | None,
    mask_token_id: int | None,
    dtype: torch.dtype,
    device: str,
    num_candidates: int,
    max_block: int,
    max_sessions: int,
    max_len: int | None,
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
    network = model.network(weights)
    return FamilyDrafter(network, model, num_candidates, max_block, max_sessions, longest)
