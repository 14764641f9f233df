"""A target whose forward passes take the time of a modelled one (foredraft.pacing)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foredraft.pacing.config import PaceConfig, Work
from foredraft.pacing.pacer import Pacer, SteppedClock
from verifier_service.models.measured_costs import measure_costs
from verifier_service.models.port import Segment, TargetModel
from verifier_service.rules.sampling import Choice
from verifier_service.schedule.costs import PassCosts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foredraft.types import ModelInfo
    from verifier_service.kv.block_pool import BlockPool


class PacedTarget:
    """A TargetModel around another."""

    def __init__(self, model: TargetModel, pacer: Pacer) -> None:
        self._model, self._pacer = model, pacer

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._model.info

    @property
    def pool(self) -> BlockPool:
        """The users of each block."""
        return self._model.pool

    @property
    def block_tokens(self) -> int:
        """How many tokens' KV a block holds."""
        return self._model.block_tokens

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the model's logits once a pass of these rows would have ended."""
        # Of a prefix that is read, not all rows are wanted.
        rounds = [segment for segment in segments if segment.wanted == len(segment.tokens)]
        with self._pacer.passing(_work(segments), _work(rounds)):
            return self._model.forward(segments)

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        """Move KV rows (see TargetModel); it takes no time."""
        self._model.keep(blocks, start, rows)

    def gauges(self) -> dict[str, float]:
        """Return the pacer's."""
        return self._pacer.gauges()


def _work(segments: Sequence[Segment]) -> Work:
    rows = sum(len(segment.tokens) for segment in segments)
    return Work(rows, sum(segment.start for segment in segments), len(segments))


def measured(
    model: TargetModel, pace: PaceConfig | None, choice: Choice, row_budget: int
) -> tuple[TargetModel, PassCosts]:
    """Return the model, paced if that is configured, and what its passes cost.

    A paced model's costs are read off at once. Raise Overloaded as measure_costs does.
    """
    if pace is None:
        return model, measure_costs(model, choice, row_budget, time.perf_counter)
    clock = SteppedClock()
    modelled = PacedTarget(model, Pacer(pace, clock.now, clock.sleep))
    costs = measure_costs(modelled, choice, row_budget, clock.now)
    return PacedTarget(model, Pacer(pace)), costs
