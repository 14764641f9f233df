"""The compiled draws (denoiser/step.c): the tokens of core/draws.py, sooner."""

from __future__ import annotations

import ctypes
from array import array

import numpy as np

from denoiser_service.core.draws import Drawn, Draws, Ints, Logits, Step
from foredraft.errors import CorruptModelOutput
from foredraft.noise.streams import signed
from foredraft.types import SamplingParams
from foredraft_kernels.loader import load_kernels
from verifier_service.models.compiled.sampling import SURE_LEAD, NativeGuesses
from verifier_service.rules.sampling import HEAD_NATS, RowSampling

# Above what two sums of exponentials in single precision differ by: the relative error of an
# exponential, 3e-7, and of 64 additions, 4e-6.
_ERROR = 1e-5


def best_draws() -> Draws:
    """Return the compiled draws where they were built, else the reference."""
    kernels = load_kernels()
    return Draws() if kernels is None else NativeDraws(kernels)


class NativeDraws(Draws):
    """A step in one call for all slots, without noise for tokens that cannot win."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        super().__init__()
        self._draw, self._guesses = kernels.fd_step, NativeGuesses(kernels)

    def draw(self, logits: Logits, slots: list[int], step: Step | None, start: int) -> Drawn:
        """Return what a step draws in slots; near-ties between tokens go to the reference."""
        if logits.dtype != np.float32 or not logits.flags.c_contiguous:
            return super().draw(logits, slots, step, start)
        length, vocabulary = logits.shape
        temperature, seed, filled = (0.0, 0, 0) if step is None else step
        count, at = len(slots), array("q", slots)
        room = bytes(8 * count)
        tokens, confidence, leads = array("q", room), array("d", room), array("d", room)
        normalisers, peaks = np.zeros((2, length))
        failed = self._draw(
            logits.ctypes.data,
            at.buffer_info()[0],
            count,
            vocabulary,
            temperature,
            signed(seed),
            filled,
            start,
            HEAD_NATS,
            tokens.buffer_info()[0],
            confidence.buffer_info()[0],
            leads.buffer_info()[0],
            normalisers.ctypes.data,
            peaks.ctypes.data,
        )
        if failed:
            raise CorruptModelOutput("the model's logits are not finite")
        if step is not None and not min(leads) > SURE_LEAD:
            for row, slot in enumerate(slots):
                if not leads[row] > SURE_LEAD:
                    tokens[row] = super().draw(logits, [slot], step, start).tokens[0]
                    confidence[row] = logits[slot, tokens[row]] - normalisers[slot]
        return Drawn(tokens.tolist(), confidence.tolist(), normalisers, peaks, _ERROR)

    def likeliest(
        self, logits: Logits, step: Step | None, positions: Ints, count: int
    ) -> list[list[int]]:
        """Return the `count` tokens of each row [n, V] with the greatest score, best first."""
        if step is None:
            sampling = SamplingParams()
        else:
            sampling = SamplingParams(temperature=step.temperature, seed=step.noise_seed)
        rows = [RowSampling(sampling, position) for position in positions.tolist()]
        return self._guesses(logits, rows, count)
