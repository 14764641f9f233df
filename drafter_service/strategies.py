"""One session's way from diffusion scores to a block: the proposal strategies, with their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drafter_service.core.causal_scorer import CausalScorer
from drafter_service.core.context_ngram import ContextNgram
from drafter_service.core.draft_tree import TreeParams
from drafter_service.core.lattice import BlockScores
from drafter_service.core.lookup import continuation
from drafter_service.core.path_search import SearchParams
from drafter_service.core.proposals import (
    Drafted,
    argmax_path,
    copied_path,
    coupled_path,
    cps_path,
    tree_block,
)
from foredraft.types import SamplingParams


class Strategy(Protocol):
    """Draws one session's blocks; told of every change of the session's context."""

    def most_tokens(self, slots: int) -> int:
        """Return the most tokens of a block from a model of that many mask slots."""

    def slots(self, num_tokens: int) -> int:
        """Return how many mask slots a block of num_tokens tokens is drawn from."""

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """The context is now its first keep_len tokens + append."""

    def copy(self, num_tokens: int, context: Sequence[int]) -> Drafted | None:
        """Return a block that needs no pass of the model, None if there is none to trust."""

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> Drafted:
        """Return the block over scores' slots, which follow the context; they may be fewer than
        `slots` asked for.
        """


class _FromScores:
    """A strategy whose every block is a path out of the model's scores, a slot for each token."""

    def most_tokens(self, slots: int) -> int:
        """Return a token for each slot but the last, which is for the guess of what follows."""
        return slots - 1

    def slots(self, num_tokens: int) -> int:
        """Return one more than there are tokens."""
        return num_tokens + 1

    def copy(self, num_tokens: int, context: Sequence[int]) -> Drafted | None:
        """Return None."""
        return None


class Argmax(_FromScores):
    """Each slot's best candidate by itself."""

    def __init__(self, eos: int) -> None:
        self._eos = eos

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Nothing is kept of the context."""

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> Drafted:
        """Return argmax_path."""
        return argmax_path(scores, num_tokens, self._eos)


class Coupled(_FromScores):
    """A walk that shares the target's noise."""

    def __init__(self, eos: int, sampling: SamplingParams) -> None:
        self._eos, self._sampling = eos, sampling

    def assign(self, keep_len: int, append: Sequence[int]) -> None:
        """Nothing is kept of the context."""

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> Drafted:
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

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> Drafted:
        """Return cps_path."""
        return cps_path(
            scores, num_tokens, self._eos, self._sampling, context, self._scorer, self._params
        )


class DraftTree(_FromScores):
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

    def draw(self, scores: BlockScores, num_tokens: int, context: Sequence[int]) -> Drafted:
        """Return tree_block."""
        return tree_block(scores, num_tokens, self._eos, self._sampling, len(context), self._params)


class Hybrid(DraftTree):
    """Copies where the text repeats itself, at no cost; elsewhere a tree of the model.

    shortest is the least length of a match, in tokens, that is trusted.
    """

    def __init__(
        self, eos: int, sampling: SamplingParams, params: TreeParams, shortest: int
    ) -> None:
        super().__init__(eos, sampling, params)
        self._shortest = shortest

    def copy(self, num_tokens: int, context: Sequence[int]) -> Drafted | None:
        """Return what followed the longest earlier match of the context's end."""
        found = continuation(context, num_tokens + 1, self._shortest)
        return copied_path(found, num_tokens, self._eos) if found else None
