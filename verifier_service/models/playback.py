"""A target that plays back recorded texts: what it decides costs next to nothing to compute.

Its KV of a position is the hash of the prefix that ends there, so block tables, trees and `keep`
are used as by any other model. After a recorded prefix the recorded token wins whatever the noise;
after any other prefix, which no verification keeps, a token that the hash names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foredraft.decoding.prefix import EMPTY_PREFIX_HASH, extend_hash
from foredraft.errors import ConfigError
from foredraft.pacing.recording import TARGET, Recording, continuations
from verifier_service.kv.block_pool import BlockPool
from verifier_service.models.checkpoint import describe, load_config
from verifier_service.models.port import Segment

if TYPE_CHECKING:
    import numpy.typing as npt

    from foredraft.types import ModelInfo
    from verifier_service.config import VerifierConfig

# Below the best logit by far more than noise and temperature can make up for.
_NEVER = -1e4


class PlaybackTarget:
    """A TargetModel over the tokens after recorded prefixes, by the prefix's hash."""

    def __init__(
        self, info: ModelInfo, recorded: Mapping[int, int], pool: BlockPool, block_tokens: int
    ) -> None:
        self.info = info
        self.pool = pool
        self.block_tokens = block_tokens
        self._recorded = recorded
        ends = set(info.eos_token_ids)
        self._others = [token for token in range(info.vocab_size) if token not in ends]
        self._hashes: list[int] = [0] * (pool.total * block_tokens)

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the wanted rows' logits, segment after segment: float32 [rows, vocabulary]."""
        tokens = [token for segment in segments for token in self._next_tokens(segment)]
        logits = np.full((len(tokens), self.info.vocab_size), _NEVER, dtype=np.float32)
        logits[np.arange(len(tokens)), tokens] = 0.0
        return logits

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        """Move the KV of row start + rows[i] to row start + i; rows ascend."""
        for to, row in enumerate(rows):
            self._hashes[self._at(blocks, start + to)] = self._hashes[self._at(blocks, start + row)]

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return no passes: the first is as fast as the others."""
        return ()

    def _next_tokens(self, segment: Segment) -> list[int]:
        """Write a segment's hashes; return the tokens after its wanted rows."""
        blocks, start, tokens, wanted, parents, *_ = segment
        before = self._hashes[self._at(blocks, start - 1)] if start else EMPTY_PREFIX_HASH
        root = len(tokens) - len(parents)
        # The hash before the segment, then the one at the end of each row.
        ends = [before]
        for row, token in enumerate(tokens):
            # A tree's parent is counted from its first row; the text before it is at -1.
            parent = row - 1 if row < root else root + parents[row - root]
            before = extend_hash(ends[1 + parent], (token,))
            ends.append(before)
            self._hashes[self._at(blocks, start + row)] = before
        return [self._next_token(each) for each in ends[len(ends) - wanted :]]

    def _next_token(self, prefix_hash: int) -> int:
        token = self._recorded.get(prefix_hash)
        return self._others[prefix_hash % len(self._others)] if token is None else token

    def _at(self, blocks: Sequence[int], row: int) -> int:
        size = self.block_tokens
        return blocks[row // size] * size + row % size


def load_playback(config: VerifierConfig) -> PlaybackTarget:
    """Return the target of the configured recording, described as the model that was recorded.

    Raise ConfigError for a recording that cannot be used.
    """
    if config.features is not None or config.tensor_parallel > 1:
        raise ConfigError("a recording has one rank and no features", param="recording")
    assert config.recording is not None
    info = describe(config, load_config(config.model))
    try:
        recording = Recording(
            config.recording, TARGET, info.name, info.weights_hash, info.vocab_size
        )
        recorded = continuations(recording.texts())
    except ValueError as error:
        raise ConfigError(f"recording: {error}", param="recording") from None
    idle = config.prefix_cache_tokens
    pool = BlockPool(
        config.kv_tokens // config.block_tokens,
        None if idle is None else idle // config.block_tokens,
    )
    return PlaybackTarget(info, recorded, pool, config.block_tokens)
