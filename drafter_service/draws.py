"""Drawing a block from a denoised block's scores: one class for each kind of proposal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drafter_service.proposals.draft_tree import TreeParams, TreeSearch, grow
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.path_search import PathSearch
from drafter_service.proposals.proposals import (
    Drafted,
    argmax_path,
    coupled_path,
    cps_path,
    tree_block,
)
from drafter_service.proposals.sampled import sampled_path
from foredraft.noise.gumbel import Noise, gumbel
from foredraft.types import SamplingParams


class Draw(Protocol):
    """Draws one session's blocks; keeps nothing of what it drew from."""

    def most_tokens(self, slots: int) -> int:
        """Return the most tokens of a block from a model of that many mask slots."""

    def slots(self, num_tokens: int) -> int:
        """Return how many mask slots a block of num_tokens tokens is drawn from."""

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return the block over scores' slots, which follow text; they may be fewer than `slots`.

        text is the context, of prefix_len tokens, and what was drafted behind it.
        """


class _Path:
    """A path, with a slot for each token."""

    def __init__(self, eos: int, sampling: SamplingParams) -> None:
        self._eos, self._sampling = eos, sampling

    def most_tokens(self, slots: int) -> int:
        """Return a token for each slot but the last, which is for the guess of what follows."""
        return slots - 1

    def slots(self, num_tokens: int) -> int:
        """Return one more than there are tokens."""
        return num_tokens + 1


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
    """Path search with a causal proxy."""

    def __init__(self, eos: int, sampling: SamplingParams, search: PathSearch) -> None:
        super().__init__(eos, sampling)
        self._search = search

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return cps_path."""
        return cps_path(scores, num_tokens, self._eos, self._sampling, text, self._search)


class DraftTree:
    """A best-first tree under a budget of nodes: several likely tokens at each depth."""

    def __init__(
        self,
        eos: int,
        sampling: SamplingParams,
        params: TreeParams,
        search: TreeSearch = grow,
        noise: Noise = gumbel,
    ) -> None:
        self._eos, self._sampling, self._params, self._search = eos, sampling, params, search
        self._noise = noise

    def most_tokens(self, slots: int) -> int:
        """Return the most nodes; they share the slots."""
        return self._params.max_nodes

    def slots(self, num_tokens: int) -> int:
        """Return the tree's depth."""
        return min(num_tokens, self._params.depth)

    def draw(
        self, scores: BlockScores, num_tokens: int, text: Sequence[int], prefix_len: int
    ) -> Drafted:
        """Return tree_block."""
        return tree_block(
            scores,
            num_tokens,
            self._eos,
            self._sampling,
            text,
            self._params,
            self._search,
            self._noise,
        )
