"""One session's way from diffusion scores to a block: the proposal strategies, with their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drafter_service.core.causal_scorer import CausalScorer
from drafter_service.core.context_ngram import ContextNgram
from drafter_service.core.lattice import BlockScores
from drafter_service.core.lookup import continuation
from drafter_service.core.path_search import SearchParams
from drafter_service.core.proposals import (
    DraftedPath,
    argmax_path,
    copied_path,
    coupled_path,
    cps_path,
)
from foredraft.types import SamplingParams


class Strategy(Protocol):
    """Draws one session's paths; told of every change of the session's context."""

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """The context is now its first keep_len tokens + append."""

    def copy(self, num_tokens: int, context: Sequence[int]) -> DraftedPath | None:
        """Return a path that needs no pass of the model, None if there is none to trust."""

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> DraftedPath:
        """Return the path over scores' slots, num_tokens + 1 or fewer, which follow the context."""


class _FromScores:
    """A strategy whose every path comes from the model's scores."""

    def copy(self, num_tokens: int, context: Sequence[int]) -> DraftedPath | None:
        """Return None."""
        return None


class Argmax(_FromScores):
    """Each slot's best candidate by itself."""

    def __init__(self, eos: int) -> None:
        self._eos = eos

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Nothing is kept of the context."""

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> DraftedPath:
        """Return argmax_path."""
        return argmax_path(scores, num_tokens, self._eos)


class Coupled(_FromScores):
    """A walk that shares the target's noise."""

    def __init__(self, eos: int, sampling: SamplingParams) -> None:
        self._eos, self._sampling = eos, sampling

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Nothing is kept of the context."""

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> DraftedPath:
        """Return coupled_path."""
        return coupled_path(scores, num_tokens, self._eos, self._sampling, len(context))


class CPS(_FromScores):
    """Path search with a causal proxy, part of which learns the session's own text."""

    def __init__(
        self,
        eos: int,
        sampling: SamplingParams,
        params: SearchParams,
        scorer: CausalScorer,
        ngram: ContextNgram,
    ) -> None:
        self._eos, self._sampling, self._params = eos, sampling, params
        self._scorer, self._ngram = scorer, ngram

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Count the new context."""
        self._ngram.truncate(keep_len)
        self._ngram.extend(append)

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> DraftedPath:
        """Return cps_path."""
        return cps_path(
            scores, num_tokens, self._eos, self._sampling, context, self._scorer, self._params
        )


class Hybrid(Coupled):
    """Copies where the text repeats itself, at no cost; elsewhere a coupled walk of the model.

    shortest is the least length of a match, in tokens, that is trusted.
    """

    def __init__(self, eos: int, sampling: SamplingParams, shortest: int) -> None:
        super().__init__(eos, sampling)
        self._shortest = shortest

    def copy(self, num_tokens: int, context: Sequence[int]) -> DraftedPath | None:
        """Return what followed the longest earlier match of the context's end."""
        found = continuation(context, num_tokens + 1, self._shortest)
        return copied_path(found, num_tokens, self._eos) if found else None
