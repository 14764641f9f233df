"""Draft trees from nothing but the text: what followed its last tokens before. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from foredraft.decoding.tree import first_branch, is_path
from foredraft.ngram.index import DEPTH, PSEUDOCOUNTS, WINDOW, NgramIndex, mix
from foredraft.types import Base, DraftBlock, Proposal

LEAST = 1.5
"""How many tokens of a tree must be expected to hold."""

# A text of one token over and over would hold up the round.
_PLACES = 64


@dataclass(frozen=True, slots=True)
class TextTreeParams:
    """How a text's tree is grown: its longest branch, how many of the text's last tokens tell, and
    what it is worth, in occurrences, that anything else may come (index.mix). A node that the
    text goes through with less than least_mass is left out, and all of a tree of which fewer than
    `least` tokens can be expected to hold.
    """

    least: float = LEAST
    depth: int = DEPTH
    window: int = WINDOW
    pseudocounts: tuple[float, ...] = PSEUDOCOUNTS
    least_mass: float = 0.02


class TextTree(NamedTuple):
    """Nodes, likeliest first, with parents as in decoding.tree; expected is how many of them will
    hold, by the counts.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    expected: float


NOTHING = TextTree((), (), 0.0)


def text_tree(
    text: Sequence[int], num_nodes: int, params: TextTreeParams, stops: Set[int]
) -> TextTree:
    """Return the likeliest prefixes of what follows the text, behind a stop nothing.

    Returns NOTHING where they are not likely enough.
    """
    ngrams = NgramIndex(text, len(params.pseudocounts), params.window, _PLACES)
    tokens: list[int] = []
    parents: list[int] = []
    expected = 0.0
    # (-mass, tie-break, parent, the branch with the token)
    heap: list[tuple[float, int, int, tuple[int, ...]]] = []
    pushed = 0

    def push(parent: int, path: tuple[int, ...], mass: float) -> float:
        """Add what may come behind a node; return how likely it is that any of it does."""
        nonlocal pushed
        following: list[int] = []
        shares: list[float] = []
        mix(following, shares, ngrams.followers(path), params.pseudocounts)
        for token, share in zip(following, shares, strict=True):
            if mass * share >= params.least_mass:
                heappush(heap, (-mass * share, pushed, parent, (*path, token)))
                pushed += 1
        return sum(shares)

    # Where the text is new, that is seen at its first token.
    if push(-1, (), 1.0) * params.depth < params.least:
        return NOTHING
    while heap and len(tokens) < num_nodes:
        negative, _, parent, path = heappop(heap)
        tokens.append(path[-1])
        parents.append(parent)
        expected -= negative
        if len(path) < params.depth and path[-1] not in stops:
            push(len(tokens) - 1, path, -negative)
    found = TextTree(tuple(tokens), tuple(parents), expected)
    return found if tokens and expected >= params.least else NOTHING


def text_block(
    text: Sequence[int], base: Base, num_tokens: int, params: TextTreeParams, stops: Set[int]
) -> DraftBlock | None:
    """Return a text's own tree of up to num_tokens nodes as a block of the proposal hybrid.

    None where too few of them can be expected to hold.
    """
    if num_tokens <= 0:
        return None
    tree = text_tree(text, num_tokens, params, stops)
    if not tree.tokens:
        return None
    trunk = first_branch(tree.parents)
    stopped = tree.tokens[trunk[-1]] in stops
    return DraftBlock(
        base,
        tree.tokens,
        () if is_path(tree.parents) else tree.parents,
        Proposal.HYBRID,
        generated_len=len(trunk) - stopped,
    )
