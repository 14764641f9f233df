"""What the core asks of a diffusion language model, and of whatever drafts states for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from denoiser_service.core.draws import Logits
from denoiser_service.core.next import Rule
from denoiser_service.core.ranks import Anchor
from foredraft.decoding.block_state import State


class Denoiser(Protocol):
    """A block-diffusion model; its blocks lie at multiples of their length."""

    vocab: int
    block_length: int

    def evaluate(self, prefix: Sequence[int], states: Sequence[State]) -> Sequence[Logits]:
        """Return the logits [L, V] of states of the block after a prefix of whole blocks: one call.

        A state's logits have the same bits whatever is evaluated with it. The mask token's are
        -inf.
        """


class Guess(NamedTuple):
    """A state that denoising may come to, and how likely that is, as far as its maker knows."""

    state: State
    chance: float = 1.0


class Drafting(Protocol):
    """Guesses states that denoising will come to; only the number of calls depends on them."""

    def __call__(self, anchor: Anchor) -> Sequence[Guess]:
        """Return states to evaluate together with the anchor's, the best first."""


MakeDrafting = Callable[[Rule, int], Drafting]
"""(rule, D*) -> what drafts states for a session"""
