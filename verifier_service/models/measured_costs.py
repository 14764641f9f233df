"""A target's pass costs, measured on its own weights at start-up."""

from __future__ import annotations

from collections.abc import Callable

from foredraft.types import SamplingParams
from verifier_service.models.port import Segment, TargetModel, alloc
from verifier_service.rules.sampling import Choice, RowSampling
from verifier_service.schedule.costs import PassCosts

# Where costs bend, from one row on; beyond the last they rise as before it.
_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 24, 32, 64, 128, 256, 512, 1024)
_REPEATS = 3
# The text before a row whose cost is compared with that of a first row.
_CONTEXT = 512


def measure_costs(
    model: TargetModel, choose: Choice, row_budget: int, clock: Callable[[], float]
) -> PassCosts:
    """Return the costs of passes of up to row_budget rows, in seconds of a clock.

    Each is the shortest of a few; it includes the choice of a token in every row. Raise Overloaded
    if the KV cache cannot hold the largest of them.
    """
    longest = min(row_budget, model.info.max_len)
    sizes = [rows for rows in _ROWS if rows <= longest]
    context = min(_CONTEXT, model.info.max_len - 1, longest)
    blocks = alloc(model, max(sizes[-1], context + 1))
    segments = [Segment(blocks, 0, [0] * rows, rows) for rows in sizes]
    # Only its time counts: the rows before it hold the KV of the last measurement.
    segments.append(Segment(blocks, context, [0], 1))
    try:
        # In turn, and not the same one twice: the first is slower than it will be.
        turns = [[_seconds(model, choose, s, clock) for s in segments] for _ in range(_REPEATS)]
    finally:
        model.pool.give(blocks)
    *seconds, behind = (min(times) for times in zip(*turns, strict=True))
    context_s = max(0.0, behind - seconds[0]) / context if context else 0.0
    return PassCosts(sizes, seconds, context_s)


def _seconds(
    model: TargetModel, choose: Choice, segment: Segment, clock: Callable[[], float]
) -> float:
    draws = [RowSampling(SamplingParams(), 1)] * segment.wanted
    began = clock()
    choose(model.forward([segment]), draws)
    return clock() - began
