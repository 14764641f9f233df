"""Next(state, logits): the state after a denoising step, a function of the state alone.

Spiffy's Alg. 1, steps 1 to 4 (Agrawal et al., 2026), with a temperature. What a step draws depends
on the seed, the block's place and the state, never on how the state was reached: so a state that
was evaluated ahead of time is left for the same next one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from denoiser_service.core.draws import Drawn, Draws, Floats, Ints, Logits, Step, sums
from foredraft.decoding.block_state import State, fill, masked_slots
from foredraft.denoising import Static, Unmasking
from foredraft.errors import CorruptModelOutput


@dataclass(frozen=True, slots=True)
class Rule:
    """How a step chooses slots and tokens; at temperature 0 nothing is random."""

    unmasking: Unmasking
    temperature: float = 0.0
    seed: int = 0
    draws: Draws = field(default_factory=Draws)

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise ValueError(f"temperature: {self.temperature} is not a finite number from 0 on")

    def draw(self, logits: Logits, slots: list[int], filled: int, start: int) -> Drawn:
        """Return what slots of a block's logits [L, V] draw in a step from `filled` slots on;
        `start` is the block's first position.
        """
        return self.draws.draw(logits, slots, self._step(filled), start)

    def likeliest(
        self, logits: Logits, filled: int, positions: Ints, count: int
    ) -> list[list[int]]:
        """Return each row's `count` tokens that `draw` would draw, each if the ones before it
        could not be drawn; there may be fewer. Near-ties may come in another order.
        """
        return self.draws.likeliest(logits, self._step(filled), positions, count)

    def scores(self, logits: Logits, filled: int, positions: Ints) -> Floats:
        """Return what `draw` takes each row's maximum of, [n, V]."""
        step = self._step(filled)
        if step is None:
            return logits.astype(np.float64)
        return self.draws.scores(logits, step, positions)

    def _step(self, filled: int) -> Step | None:
        return Step(self.temperature, self.seed, filled) if self.temperature > 0 else None


class Next(NamedTuple):
    """The state after a step; of slots that were masked before the logarithms [L] of the sums that
    p is divided by, and log p [L] of the likeliest token.
    """

    state: State
    normalisers: Floats
    peaks: Floats

    @property
    def surest(self) -> float:
        """The greatest log p of a token of any slot that is masked still, -inf without one."""
        return max(
            (float(self.peaks[slot]) for slot in masked_slots(self.state)), default=-math.inf
        )


def next_state(state: State, logits: Logits, rule: Rule, start: int) -> Next:
    """Return what one step leads to; `start` is the block's first position in the text.

    A slot's confidence is p of the token drawn for it, at temperature 1; ties go to the lowest slot
    and to the lowest token. Raise ValueError if nothing is masked, CorruptModelOutput for logits
    that are not finite or of another shape.
    """
    slots = masked_slots(state)
    if not slots:
        raise ValueError("state: the block is full")
    if logits.ndim != 2 or len(logits) != len(state):
        raise CorruptModelOutput(f"logits of shape {logits.shape} for {len(state)} slots")
    drawn = rule.draw(logits, slots, len(state) - len(slots), start)
    confidence = drawn.confidence
    chosen = most_confident(confidence, rule.unmasking)
    if drawn.error and _is_close(confidence, chosen, rule.unmasking, drawn.error):
        exact = logits[slots, drawn.tokens] - sums(logits[slots]).normalisers
        chosen = most_confident(exact.tolist(), rule.unmasking)
    filled = fill(state, {slots[row]: drawn.tokens[row] for row in chosen})
    return Next(filled, drawn.normalisers, drawn.peaks)


def most_confident(confidence: Sequence[float], unmasking: Unmasking) -> list[int]:
    """Return the rows that a step fills, given each one's log-confidence, the best first."""
    order = sorted(range(len(confidence)), key=lambda row: -confidence[row])
    if isinstance(unmasking, Static):
        count = unmasking.per_step
    else:
        count = max(1, sum(math.exp(each) > unmasking.threshold for each in confidence))
    return order[:count]


def _is_close(
    confidence: Sequence[float], chosen: Sequence[int], unmasking: Unmasking, error: float
) -> bool:
    """Return whether other rows might be chosen were confidences not wrong by as much as error."""
    least = min(confidence[row] for row in chosen)
    rest = (each for row, each in enumerate(confidence) if row not in chosen)
    if least - max(rest, default=-math.inf) <= 2 * error:
        return True
    if isinstance(unmasking, Static):
        return False
    bound = math.log(unmasking.threshold) if unmasking.threshold > 0 else -math.inf
    return any(abs(each - bound) <= error for each in confidence)
