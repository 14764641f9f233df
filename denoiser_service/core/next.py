"""Next(state, logits): the state after a denoising step, a function of the state alone.

Spiffy's Alg. 1, steps 1 to 4 (Agrawal et al., 2026), with a temperature. What a step draws depends
on the seed, the block's place and the state, never on how the state was reached: so a state that
was evaluated ahead of time is left for the same next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft.decoding.block_state import State, fill, masked_slots, num_filled
from foredraft.denoising import Static, Unmasking
from foredraft.errors import CorruptModelOutput
from foredraft.noise.gumbel import gumbel
from foredraft.noise.streams import DENOISE, substream

Floats = npt.NDArray[np.float64]
Logits = npt.NDArray[np.float32]
"""[L, vocabulary] of one state; -inf for what must not be drawn, the mask token among it."""


StepNoise = Callable[[int, int, npt.NDArray[np.int64], int], Floats]
"""(seed, filled slots, positions [n], vocabulary) -> Gumbel noise [n, vocabulary]"""


def keyed_noise(seed: int, filled: int, positions: npt.NDArray[np.int64], vocab: int) -> Floats:
    """Return the noise [n, vocabulary] of positions in the text, for the step from `filled` slots.

    A block has each number of filled slots at most once, so every step's draws are fresh. Keyed by
    position alone, a slot that was not filled would be drawn again with the noise that left it out.
    """
    return gumbel(substream(seed, DENOISE, filled), positions, np.arange(vocab, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Rule:
    """How a step chooses slots and tokens; at temperature 0 nothing is random."""

    unmasking: Unmasking
    temperature: float = 0.0
    seed: int = 0
    noise: StepNoise = keyed_noise

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise ValueError(f"temperature: {self.temperature} is not a finite number from 0 on")

    def scores(self, log_p: Floats, filled: int, positions: npt.NDArray[np.int64]) -> Floats:
        """Return what a step from `filled` slots on takes each row's maximum of, for log p [n, V].

        Gumbel-max: the maximum of log p/T + g is a draw from p^(1/T), normalised.
        """
        if self.temperature == 0:
            return log_p
        noise = self.noise(self.seed, filled, positions, log_p.shape[1])
        return log_p / self.temperature + noise


def log_probs(logits: Logits) -> Floats:
    """Return log p of rows [n, V] in float64; raise CorruptModelOutput if they are not finite."""
    rows = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        highest = rows.max(axis=1, keepdims=True, initial=-np.inf)
    if not np.isfinite(highest).all():
        raise CorruptModelOutput("the model's logits are not finite")
    rows -= highest
    normalised: Floats = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return normalised


def next_state(state: State, logits: Logits, rule: Rule, start: int) -> State:
    """Return the state after one step; `start` is the block's first position in the text.

    A slot's confidence is p of the token drawn for it, at temperature 1; ties go to the lowest slot
    and to the lowest token. Raise ValueError if nothing is masked, CorruptModelOutput for logits
    that are not finite or of another shape.
    """
    slots = masked_slots(state)
    if not slots:
        raise ValueError("state: the block is full")
    if logits.ndim != 2 or len(logits) != len(state):
        raise CorruptModelOutput(f"logits of shape {logits.shape} for {len(state)} slots")
    log_p = log_probs(logits[slots])
    positions = start + np.array(slots, dtype=np.int64)
    tokens = rule.scores(log_p, num_filled(state), positions).argmax(axis=1)
    confidence = log_p[np.arange(len(slots)), tokens]
    chosen = most_confident(confidence, rule.unmasking)
    return fill(state, {slots[row]: int(tokens[row]) for row in chosen})


def most_confident(confidence: Floats, unmasking: Unmasking) -> list[int]:
    """Return the rows that a step fills, given each one's log-confidence [n], the best first."""
    order = np.argsort(-confidence, kind="stable")
    if isinstance(unmasking, Static):
        count = unmasking.per_step
    else:
        count = max(1, int((np.exp(confidence) > unmasking.threshold).sum()))
    return [int(row) for row in order[:count]]
