"""A target's pass costs, measured on its own weights at start-up."""

from __future__ import annotations

from collections.abc import Callable

from foredraft.types import SamplingParams
from verifier_service.models.port import Segment, TargetModel, alloc
from verifier_service.rules.sampling import Choice, RowSampling
from verifier_service.schedule.costs import PassCosts

# Where costs bend, from one row on; beyond the last they rise as before it. Matrix units read rows
# in tiles of 16 and weights once for two of them: the row behind a whole tile costs more than the
# next ones, and a line from 16 to 24 rows would sell it too cheaply.
_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 17, 24, 32, 33, 48, 49, 64, 128, 256, 512, 1024)
_REPEATS = 3
# It goes on while times still fall by more than this share, as beside a drafter that is loading,
# but not much longer than so many seconds.
_SETTLED = 0.05
_SETTLE_S = 5.0
# So many sessions of one row each are compared with as many rows of one session, and with as many
# sessions behind a text of so many tokens.
_SESSIONS = 8
_CONTEXT = 512


def measure_costs(
    model: TargetModel, choose: Choice, row_budget: int, clock: Callable[[], float]
) -> PassCosts:
    """Return the costs of passes of up to row_budget rows, in seconds of a clock.

    Each is the shortest of several; it includes the choice of a token in every row. Raise
    Overloaded if the KV cache cannot hold the largest of them.
    """
    longest = min(row_budget, model.info.max_len)
    sizes = [rows for rows in _ROWS if rows <= longest]
    context = min(_CONTEXT, model.info.max_len - 1, longest)
    blocks = alloc(model, max(sizes[-1], context + 1))
    passes = [[Segment(blocks, 0, [0] * rows, rows)] for rows in sizes]
    # Only their time counts: the rows before hold the KV of the last measurement, and several
    # sessions may be the same one.
    several = min(_SESSIONS, sizes[-1])
    passes.append([Segment(blocks, context, [0], 1)] * several)
    passes.append([Segment(blocks, 0, [0], 1)] * several)
    try:
        *seconds, behind, apart = _shortest(
            lambda: [_seconds(model, choose, each, clock) for each in passes], clock
        )
    finally:
        model.pool.give(blocks)
    context_s = max(0.0, behind - apart) / (several * context) if context else 0.0
    together = seconds[sizes.index(several)] if several in sizes else apart
    session_s = max(0.0, apart - together) / max(1, several - 1)
    return PassCosts(sizes, seconds, context_s, session_s)


def _shortest(turn: Callable[[], list[float]], clock: Callable[[], float]) -> list[float]:
    """Return the shortest times of turns in which everything is measured once."""
    # In turn, and not the same one twice: the first is slower than it will be.
    began, turns, best, falls = clock(), 0, [float("inf")], True
    while turns < _REPEATS or (falls and clock() - began < _SETTLE_S):
        before, times = best, turn()
        best = list(map(min, before, times)) if turns else times
        falls = any(now < (1 - _SETTLED) * then for now, then in zip(best, before, strict=False))
        turns += 1
    return best


def _seconds(
    model: TargetModel, choose: Choice, segments: list[Segment], clock: Callable[[], float]
) -> float:
    draws = [RowSampling(SamplingParams(), 1)] * sum(segment.wanted for segment in segments)
    began = clock()
    choose(model.forward(segments), draws)
    return clock() - began
