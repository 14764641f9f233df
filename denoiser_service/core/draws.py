"""What the rows of a step draw: temperature, and noise keyed by the number of filled slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foredraft.errors import CorruptModelOutput
from foredraft.noise.gumbel import gumbel
from foredraft.noise.streams import DENOISE, substream

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]
"""[L, vocabulary] of one state; -inf for what must not be drawn, the mask token among it."""


class Sums(NamedTuple):
    """Each row's highest logit [n], and the logarithms [n] of the sums that p is divided by."""

    highest: Floats
    normalisers: Floats


class Drawn(NamedTuple):
    """What a step draws in some of a block's slots: each one's token and the log p of it.

    Of these slots also the logarithms [L] of the sums that p is divided by, and log p [L] of the
    likeliest token. Sums are at most `error` from those of `sums`.
    """

    tokens: list[int]
    confidence: list[float]
    normalisers: Floats
    peaks: Floats
    error: float = 0.0


class Step(NamedTuple):
    """A step's randomness: a temperature above 0, a seed, and how many slots were filled before.

    A block has each number of filled slots at most once, so every step's draws are fresh. Keyed by
    position alone, a slot that was not filled would be drawn again with the noise that left it out.
    """

    temperature: float
    seed: int
    filled: int

    @property
    def noise_seed(self) -> int:
        """The seed of the step's own noise."""
        return substream(self.seed, DENOISE, self.filled)


StepNoise = Callable[[Step, Ints, int], Floats]
"""(step, positions [n] in the text, vocabulary) -> Gumbel noise [n, vocabulary]"""


def keyed_noise(step: Step, positions: Ints, vocab: int) -> Floats:
    """Return the noise [n, vocabulary] of positions in the text."""
    return gumbel(step.noise_seed, positions, np.arange(vocab, dtype=np.int64))


def sums(logits: Logits) -> Sums:
    """Return the sums of rows [n, V].

    Raise CorruptModelOutput if rows are not finite where they are highest.
    """
    highest = logits.max(axis=1, initial=-np.inf)
    if not np.isfinite(highest).all():
        raise CorruptModelOutput("the model's logits are not finite")
    # In float32, the model's own precision, and a third of the time; the sums in float64.
    mass = np.exp(logits - highest[:, None]).sum(axis=1, dtype=np.float64)
    return Sums(highest.astype(np.float64), highest + np.log(mass))


class Draws:
    """Gumbel-max: the maximum of logits/T + g is a draw from p^(1/T), normalised."""

    def __init__(self, noise: StepNoise = keyed_noise) -> None:
        self._noise = noise

    def scores(self, logits: Logits, step: Step, positions: Ints) -> Floats:
        """Return what each row [n, V] takes the maximum of; ties go to the lowest token."""
        highest = logits.max(axis=1, keepdims=True).astype(np.float64)
        scaled: Floats = (logits - highest) / step.temperature
        return scaled + self._noise(step, positions, logits.shape[1])

    def draw(self, logits: Logits, slots: list[int], step: Step | None, start: int) -> Drawn:
        """Return what slots of a block's logits [L, V] draw, without a step the highest logit's
        token; `start` is the block's first position.

        Raise CorruptModelOutput if rows are not finite where they are highest.
        """
        rows, positions = logits[slots], start + np.array(slots, dtype=np.int64)
        found = sums(rows)
        scores = rows if step is None else self.scores(rows, step, positions)
        tokens = scores.argmax(axis=1)
        normalisers, peaks = np.zeros((2, len(logits)))
        normalisers[slots], peaks[slots] = found.normalisers, found.highest - found.normalisers
        confidence = rows[np.arange(len(slots)), tokens] - found.normalisers
        return Drawn(tokens.tolist(), confidence.tolist(), normalisers, peaks)

    def likeliest(
        self, logits: Logits, step: Step | None, positions: Ints, count: int
    ) -> list[list[int]]:
        """Return the `count` tokens of each row [n, V] with the greatest score, or without a step
        the greatest logit, best first; fewer where others cannot be drawn.
        """
        scores = logits if step is None else self.scores(logits, step, positions)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        return [
            [token for token in tokens if row[token] > -np.inf]
            for row, tokens in zip(scores, best.tolist(), strict=True)
        ]
