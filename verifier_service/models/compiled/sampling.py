"""The compiled choice (verifier/sampling.c): the same tokens as rules/sampling.py, sooner."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from foredraft.noise.streams import stream_key
from foredraft_kernels.loader import load_kernels
from verifier_service.rules.guesses import Guesses, likeliest
from verifier_service.rules.sampling import (
    HEAD_NATS,
    Choice,
    GumbelArgmax,
    RowSampling,
    choose,
    gumbel_argmax,
    process,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from foredraft.types import SamplingParams

# Far above what two ways to compute the noise can differ by (1e-12), far below what two scores
# usually do.
SURE_LEAD = 1e-9


def best_argmax() -> GumbelArgmax:
    """Return the compiled argmax where it was built, else the reference."""
    kernels = load_kernels()
    return gumbel_argmax if kernels is None else NativeArgmax(kernels)


def best_choice() -> Choice:
    """Return the compiled choice where it was built, else the reference."""
    kernels = load_kernels()
    return choose if kernels is None else NativeChoice(kernels)


def best_guesses() -> Guesses:
    """Return the compiled guesses where they were built, else the reference."""
    kernels = load_kernels()
    return likeliest if kernels is None else NativeGuesses(kernels)


class NativeChoice:
    """sampling.choose in one call for all rows; what truncates a row leaves it to that."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._choose = kernels.fd_choose
        self._reference = partial(choose, argmax=NativeArgmax(kernels))

    def __call__(
        self, logits: npt.NDArray[np.float32], draws: Sequence[RowSampling]
    ) -> list[int | None]:
        rows, vocabulary = logits.shape
        if logits.dtype != np.float32 or logits.strides[1] != logits.itemsize:
            return self._reference(logits, draws)
        keys, temperatures = array("q"), array("d")
        for sampling, position in draws:
            keys.append(stream_key(sampling.seed, position) if sampling.temperature else 0)
            temperatures.append(-1 if truncates(sampling) else sampling.temperature)
        tokens, leads = array("q", bytes(8 * rows)), array("d", bytes(8 * rows))
        self._choose(
            logits.ctypes.data,
            rows,
            logits.strides[0] // logits.itemsize,
            vocabulary,
            keys.buffer_info()[0],
            temperatures.buffer_info()[0],
            HEAD_NATS,
            tokens.buffer_info()[0],
            leads.buffer_info()[0],
        )
        chosen: list[int | None] = [token if token >= 0 else None for token in tokens]
        for row, lead in enumerate(leads):
            # A row that was left out has no lead.
            if chosen[row] is not None and not lead > SURE_LEAD:
                chosen[row] = self._reference(logits[row : row + 1], draws[row : row + 1])[0]
        return chosen


def truncates(sampling: SamplingParams) -> bool:
    """Return whether a row's distribution is cut down, rather than flattened alone."""
    cut = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
    return sampling.temperature > 0 and cut


class NativeArgmax:
    """argmax_v [z(v) + g(seed, position, v)] of each row; near-ties go to the reference."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._draw = kernels.fd_draw

    def __call__(self, z: npt.NDArray[np.float64], draws: Sequence[RowSampling]) -> list[int]:
        tokens = []
        lead = ctypes.c_double()
        at = ctypes.byref(lead)
        rows, vocabulary = z.shape
        address, stride = z.ctypes.data, z.strides[0]
        for row in range(rows):
            sampling, position = draws[row]
            key = stream_key(sampling.seed, position)
            token = self._draw(address + row * stride, vocabulary, key, HEAD_NATS, at)
            if not lead.value > SURE_LEAD:
                token = gumbel_argmax(z[row : row + 1], draws[row : row + 1])[0]
            tokens.append(token)
        return tokens


class NativeGuesses:
    """guesses.likeliest in one call for all rows; near-ties may come in another order."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        self._guess = kernels.fd_guess

    def __call__(
        self, logits: npt.NDArray[np.float32], draws: Sequence[RowSampling], count: int
    ) -> list[list[int]]:
        if not draws:
            return []
        rows, count = len(draws), min(count, logits.shape[1])
        cut = [row for row, draw in enumerate(draws) if truncates(draw.sampling)]
        scores = np.array(logits) if cut else np.ascontiguousarray(logits)
        keys = array("q", [stream_key(draw.sampling.seed, draw.position) for draw in draws])
        temperatures = array("d", [draw.sampling.temperature for draw in draws])
        for row in cut:
            scores[row] = process(logits[row : row + 1], draws[row : row + 1])[0]
            temperatures[row] = 1.0
        # What each score is kept with: it, and its token.
        room, tokens = bytearray(16 * count), array("q", bytes(8 * rows * count))
        self._guess(
            scores.ctypes.data,
            rows,
            scores.shape[1],
            scores.shape[1],
            keys.buffer_info()[0],
            temperatures.buffer_info()[0],
            HEAD_NATS,
            ctypes.addressof(ctypes.c_char.from_buffer(room)),
            count,
            tokens.buffer_info()[0],
        )
        found = [tokens[row * count : (row + 1) * count].tolist() for row in range(rows)]
        return [each[: each.index(-1)] if each[-1] < 0 else each for each in found]
