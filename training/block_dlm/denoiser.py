"""A trained block-diffusion model as the core's port: the served model, one text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from denoiser_service.block_kv import BlockKv
from denoiser_service.core.draws import Logits
from denoiser_service.evaluation import Evaluator, Part
from foredraft.decoding.block_state import State
from verifier_service.config import VerifierConfig
from verifier_service.kv.block_table import KvBlocks
from verifier_service.load import load_target

_KEY = 0
"""Of the only text."""


class ServedDenoiser:
    """Evaluates states as they are served; what a prefix begins with like the last one is kept."""

    def __init__(self, folder: Path, dtype: Literal["bf16", "fp32"] = "bf16") -> None:
        """Raise WeightsError or ConfigError where the folder has no block-diffusion model."""
        model = load_target(VerifierConfig(model=folder, dtype=dtype, threads=2))
        self.block_length, self.vocab = model.info.block_length, model.info.vocab_size
        self._longest = model.info.max_len
        blocks = KvBlocks(model.pool, block_tokens=model.block_tokens, max_sessions=1)
        self._tables = BlockKv(model, blocks)
        self._evaluate = Evaluator(model, self._tables, model.info.mask_token_id)
        self._read: tuple[int, ...] = ()

    def evaluate(self, prefix: Sequence[int], states: Sequence[State]) -> Sequence[Logits]:
        """Logits [L, V] of states of the block after a prefix of whole blocks; one pass for each.

        Raises ValueError for a prefix that ends inside a block, or one too long for the model.
        """
        text, length = tuple(prefix), self.block_length
        if len(text) % length:
            raise ValueError(f"prefix: {len(text)} tokens end inside a block")
        if len(text) + length > self._longest:
            raise ValueError(f"prefix: {len(text)} tokens leave no room for a block")
        if not self._read or text[: len(self._read)] != self._read:
            self._tables.close(_KEY)
            self._tables.open(_KEY, self._longest, 0)
            self._read = ()
        found = []
        for state in states:
            part = Part(_KEY, text, len(self._read), len(text), [state])
            [[logits]], _ = self._evaluate([part])
            found.append(logits)
            self._read = text
        return found
