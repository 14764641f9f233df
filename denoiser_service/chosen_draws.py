"""The draws of core/draws.py by what chooses a verifier's tokens, which may be compiled."""

from __future__ import annotations

import numpy as np

from denoiser_service.compiled_sums import TakeSums
from denoiser_service.core.draws import Draws, Ints, Logits, Step, Sums
from foredraft.types import SamplingParams
from verifier_service.rules.guesses import Guesses
from verifier_service.rules.sampling import Choice, RowSampling


class ChosenDraws(Draws):
    """Draws without noise for tokens that cannot win."""

    def __init__(self, choice: Choice, guesses: Guesses, take_sums: TakeSums) -> None:
        super().__init__()
        self._choice, self._guesses, self._sums = choice, guesses, take_sums

    def sums(self, logits: Logits) -> Sums:
        """Return each row's highest logit and the logarithm of its sum."""
        return self._sums(logits)

    def tokens(self, logits: Logits, step: Step, positions: Ints) -> Ints:
        """Return the token that each row [n, V] draws; rows are finite where they are highest."""
        return np.array(self._choice(logits, _rows(step, positions)), dtype=np.int64)

    def likeliest(
        self, logits: Logits, step: Step | None, positions: Ints, count: int
    ) -> list[list[int]]:
        """Return the `count` tokens of each row [n, V] with the greatest score, best first."""
        return self._guesses(logits, _rows(step, positions), count)


def _rows(step: Step | None, positions: Ints) -> list[RowSampling]:
    """Return how a step draws the rows of positions; without one the highest logit is drawn."""
    if step is None:
        sampling = SamplingParams()
    else:
        sampling = SamplingParams(temperature=step.temperature, seed=step.noise_seed)
    return [RowSampling(sampling, position) for position in positions.tolist()]
