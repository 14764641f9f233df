"""A trained block-diffusion model as the core's port: one state after the other, no cache.

Plain and slow: the reference that a serving engine is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from denoiser_service.core.draws import Logits
from foredraft.decoding.block_state import MASKED, State
from training.block_dlm.model import load, visible
from training.embedded.target_model import NEVER, TargetModel, masked_attention


class TorchDenoiser:
    """Evaluates each state by itself in fp32, so that no state's bits depend on another."""

    def __init__(self, network: TargetModel, block_length: int, mask_token: int) -> None:
        self.network, self.block_length, self.mask_token = network.eval(), block_length, mask_token
        self.vocab = network.shape.vocab

    @classmethod
    def of_folder(cls, folder: Path) -> TorchDenoiser:
        """The model in a folder that `foredraft train block_dlm` wrote."""
        return cls(*load(folder))

    def evaluate(self, prefix: Sequence[int], states: Sequence[State]) -> Sequence[Logits]:
        """Logits [L, V] of states of the block after a prefix of whole blocks; one pass for each.

        Raises ValueError for a prefix that ends inside a block, or one too long for the model.
        """
        length = len(prefix) + self.block_length
        if len(prefix) % self.block_length:
            raise ValueError(f"prefix: {len(prefix)} tokens end inside a block")
        if length > self.network.shape.max_positions:
            raise ValueError(f"prefix: {len(prefix)} tokens leave no room for a block")
        seen = visible(length, self.block_length)[:length, :length]
        attend = partial(masked_attention, hidden=torch.where(seen, 0.0, NEVER))
        return [self._evaluate([*prefix, *state], attend) for state in states]

    @torch.inference_mode()
    def _evaluate(self, tokens: Sequence[int], attend: partial[torch.Tensor]) -> Logits:
        masked = [self.mask_token if token == MASKED else token for token in tokens]
        hidden = self.network.hidden(torch.tensor([masked]), attend)[0, -self.block_length :]
        logits = F.linear(hidden, self.network.embedding.weight)
        logits[:, self.mask_token] = -torch.inf
        return logits.numpy()
