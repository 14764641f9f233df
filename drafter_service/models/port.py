"""What a diffusion drafter must do to be served: one pass over many sessions' blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from drafter_service.proposals.lattice import BlockScores
from foredraft.types import SamplingParams

FILLED = -1e4
"""Bounds the log-probability of any other token at a slot that holds one: finite, e^-10000 is 0."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one model can do; the engine adapts to it.

    max_mask_slots is the largest number of mask slots in one block. prefix_kv is how a prefix's
    keys and values relate to what follows: "exact" if they never change and can be cached. If all
    that follows changes them, a request brings its whole prefix: the model then feeds all of it in
    each pass ("none"), or feeds what is new beside what it cached, now stale, and from time to time
    all of it ("approximate"). cache_slots sessions of up to cache_tokens tokens, mask slots
    included, can be held at once. partial_blocks is whether slots of a block may already hold
    tokens. features_hash and features_width say which of the target's fused features
    (foredraft.features) the model needs of its prefix's tokens, if any; it caches their keys and
    values. With features_lag n it reads, for a token, those of the n-th token before. Behind the
    cache slots are branch_slots more, for blocks that share another slot's prefix: none unless
    prefix_kv is "exact".
    """

    name: str
    vocab_size: int
    max_len: int
    eos: int
    max_mask_slots: int
    prefix_kv: Literal["exact", "approximate", "none"]
    cache_slots: int
    cache_tokens: int
    partial_blocks: bool = False
    features_hash: str = ""
    features_width: int = 0
    features_lag: int = 0
    mask: int | None = None
    branch_slots: int = 0


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """One session's part of a pass.

    cache slot `slot` holds the session's first `start` tokens; `tokens`, at least one, follow them
    and are cached too; then come num_slots mask slots. With num_slots = 0 the pass only caches.
    filled[j] is the token that slot j holds instead of a mask, -1 if none; empty if all are masks.
    A model may tell such a pass of the one before it in the same cache slot, over the same block.
    tentative is true where the text's end or what slots hold was drafted just now: a stale prefix
    must not be made of it, as later drafts would then depend on what was drawn here, not on the
    text. fresh is true where what the slot holds is not the session's: a draft must not depend on
    another's. features are those of tokens, for a model that needs them: of all where the pass only
    caches, else of all but the last, whose own are not known before it was verified. With a lag
    they are those of the tokens so far before, which a text's first ones do not have. With
    prefix_slot the first `start` tokens are another slot's, whose part of the pass writes none of
    them; what this slot holds of them is then not defined. sampling is what the slots' tokens will
    be drawn with: which ones are candidates.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    num_slots: int
    filled: Sequence[int] = ()
    features: bytes = b""
    tentative: bool = False
    fresh: bool = False
    prefix_slot: int | None = None
    sampling: SamplingParams = SamplingParams()


class DiffusionLM(Protocol):
    """A family of diffusion drafters behind the engine."""

    @property
    def capabilities(self) -> Capabilities:
        """What this model can do."""

    def draft(self, requests: Sequence[BlockRequest]) -> list[BlockScores]:
        """Return the candidates of every request's mask slots, from ONE forward pass.

        They are the likeliest tokens, best first. Above temperature 0 they are those that the
        noise makes likeliest, the greatest log q / T + g of the whole vocabulary, still ordered by
        q: a draw is often a token that without its noise is not among the best. Requests name
        distinct cache slots. The mask token is never a candidate. A filled slot's best candidate is
        its token; the others' log-probabilities are FILLED at most.
        """
