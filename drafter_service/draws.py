"""Drawing a block from a denoised block's scores: one class for each kind of proposal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drafter_service.core.causal_scorer import CausalScorer
from drafter_service.core.context_ngram import ContextNgram
from drafter_service.core.draft_tree import TreeParams
from drafter_service.core.lattice import BlockScores
from drafter_service.core.path_search import SearchParams
from drafter_service.core.proposals import (
    Drafted,
    argmax_path,
    coupled_path,
    cps_path,
    tree_block,
)
from drafter_service.core.sampled import sampled_path
from foredraft.types import SamplingParams


class Draw(Protocol):
    """Draws one session's blocks; told of every change of the session's context."""

    def most_tokens(self, slots: int) -> int:
        """Return the most tokens of a block from a model of that many mask slots."""

    def slots(self, num_tokens: int) -> int:
        """Return how many mask slots a block of num_tokens tokens is drawn from."""

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """The context is now its first keep_len tokens + append."""

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return the block over scores' slots, which follow text; they may be fewer than `slots`.

        text is the context, of prefix_len tokens, and what was drafted behind it.
        """


class _Path:
    """A path, with a slot for each token; nothing is kept of the context."""

    def __init__(self, eos: int, sampling: SamplingParams) -> None:
        self._eos, self._sampling = eos, sampling

    def most_tokens(self, slots: int) -> int:
        """Return a token for each slot but the last, which is for the guess of what follows."""
        return slots - 1

    def slots(self, num_tokens: int) -> int:
        """Return one more than there are tokens."""
        return num_tokens + 1

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Nothing is kept of the context."""


class Argmax(_Path):
    """Each slot's best candidate by itself."""

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return argmax_path."""
        return argmax_path(scores, num_tokens, self._eos)


class Coupled(_Path):
    """A walk that shares the target's noise."""

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return coupled_path."""
        return coupled_path(scores, num_tokens, self._eos, self._sampling, len(text))


class Sampled(_Path):
    """A walk with noise of its own, which says what each token was drawn from.

    most is the number of candidates that a token is drawn from, at most limits.MAX_CANDIDATES.
    """

    def __init__(self, eos: int, sampling: SamplingParams, most: int) -> None:
        super().__init__(eos, sampling)
        self._most = most

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return sampled_path."""
        return sampled_path(
            scores, num_tokens, self._eos, self._sampling, len(text), prefix_len, self._most
        )


class CPS(_Path):
    """Path search with a causal proxy, part of which learns the session's own text."""

    def __init__(
        self,
        eos: int,
        sampling: SamplingParams,
        params: SearchParams,
        scorer: CausalScorer,
        ngram: ContextNgram,
    ) -> None:
        super().__init__(eos, sampling)
        self._params, self._scorer, self._ngram = params, scorer, ngram

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Count the new context."""
        self._ngram.truncate(keep_len)
        self._ngram.extend(append)

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return cps_path."""
        return cps_path(
            scores, num_tokens, self._eos, self._sampling, text, self._scorer, self._params
        )


class DraftTree:
    """A best-first tree under a budget of nodes: several likely tokens at each depth."""

    def __init__(self, eos: int, sampling: SamplingParams, params: TreeParams) -> None:
        self._eos, self._sampling, self._params = eos, sampling, params

    def most_tokens(self, slots: int) -> int:
        """Return the most nodes; they share the slots."""
        return self._params.max_nodes

    def slots(self, num_tokens: int) -> int:
        """Return the tree's depth."""
        return min(num_tokens, self._params.depth)

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Nothing is kept of the context."""

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return tree_block."""
        return tree_block(scores, num_tokens, self._eos, self._sampling, len(text), self._params)
