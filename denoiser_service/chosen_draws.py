"""The draws of core/draws.py by what chooses a verifier's tokens, which may be compiled."""

from __future__ import annotations

import numpy as np

from denoiser_service.compiled_sums import TakeSums
from denoiser_service.core.draws import Draws, Ints, Logits, Step, Sums, sums
from foredraft.types import SamplingParams
from verifier_service.rules.sampling import Choice, RowSampling


class ChosenDraws(Draws):
    """Draws without noise for tokens that cannot win."""

    def __init__(self, choice: Choice, take_sums: TakeSums = sums) -> None:
        super().__init__()
        self._choice, self._sums = choice, take_sums

    def sums(self, logits: Logits) -> Sums:
        """Return each row's highest logit and the logarithm of its sum."""
        return self._sums(logits)

    def tokens(self, logits: Logits, step: Step, positions: Ints) -> Ints:
        """Return the token that each row [n, V] draws; rows are finite where they are highest."""
        sampling = SamplingParams(temperature=step.temperature, seed=step.noise_seed)
        draws = [RowSampling(sampling, int(position)) for position in positions]
        return np.array(self._choice(logits, draws), dtype=np.int64)
