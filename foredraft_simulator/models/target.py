"""A target that decides by position alone and whose passes take a modelled time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foredraft.decoding.tree import depths
from foredraft.pacing.config import Work
from foredraft_simulator.models.texts import INFO, right
from verifier_service.kv.block_pool import BlockPool
from verifier_service.models.port import Segment
from verifier_service.rules.sampling import RowSampling

if TYPE_CHECKING:
    import numpy.typing as npt


class SimulatedTarget:
    """A TargetModel; spend(seconds) makes a pass last, pass_s is how long."""

    info = INFO

    def __init__(
        self,
        pool: BlockPool,
        block_tokens: int,
        pass_s: Callable[[Work], float],
        spend: Callable[[float], None],
    ) -> None:
        self.pool, self.block_tokens = pool, block_tokens
        self._pass_s, self._spend = pass_s, spend

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return for each wanted row, in place of logits, the token that follows it."""
        rows = context = 0
        tokens: list[int] = []
        for _, start, fed, wanted, parents, *_ in segments:
            rows += len(fed)
            context += start
            end = start + len(fed)
            if parents:
                # The position after each node of the tree, and after the rows before it.
                root = end - len(parents)
                after = [root + depth for depth in depths(parents)]
                positions = [*range(end - wanted + 1, root + 1), *after]
                tokens += map(right, positions)
            else:
                tokens += map(right, range(end - wanted + 1, end + 1))
        self._spend(self._pass_s(Work(rows, context, len(segments))))
        return np.array(tokens, dtype=np.float32).reshape(-1, 1)

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        """Move nothing: what is decided depends on no KV."""


def chosen(logits: npt.NDArray[np.float32], draws: Sequence[RowSampling]) -> list[int | None]:
    """Return the tokens that the target put in place of logits, row by row."""
    return [int(token) for token in logits[:, 0]]
