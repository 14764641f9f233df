"""How draft trees of a text's own n-grams are grown."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.ngram.index import DEPTH, PSEUDOCOUNTS, WINDOW

MIN_EXPECTED_TOKENS = 1.5
"""How many tokens of a tree must be expected to be accepted."""
MIN_NODE_PROB = 0.02
"""The least probability of a node."""


@dataclass(frozen=True, slots=True)
class NgramParams:
    """How n-gram trees are grown, depth tokens deep at most, of the text's last window tokens.

    pseudocounts are the weights, in occurrences, against what followed the last 1, 2, ... tokens
    (ngram.index.mix). A node less probable than min_node_prob is left out, and a whole tree of
    which fewer than min_expected_tokens are expected to be accepted.
    """

    min_expected_tokens: float = MIN_EXPECTED_TOKENS
    depth: int = DEPTH
    window: int = WINDOW
    pseudocounts: tuple[float, ...] = PSEUDOCOUNTS
    min_node_prob: float = MIN_NODE_PROB
