"""Draft trees of the text's own n-grams: what followed its last tokens before. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from heapq import heappop, heappush
from typing import NamedTuple

from foredraft.decoding.tree import first_branch, is_path
from foredraft.messages import DraftBlock
from foredraft.ngram.index import NgramIndex, mix
from foredraft.ngram.params import NgramParams
from foredraft.types import NGRAM, Base

# A text of one token over and over would hold up the round.
PLACES = 64


class NgramTree(NamedTuple):
    """Nodes, likeliest first, with parents as in decoding.tree; expected is how likely each is to
    be accepted, by the counts.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    expected: tuple[float, ...]


NOTHING = NgramTree((), (), ())


def ngram_tree(
    text: Sequence[int], num_nodes: int, params: NgramParams, stops: Set[int]
) -> NgramTree:
    """Return the likeliest prefixes of what follows the text; nothing follows a stop token.

    Returns NOTHING where they are not likely enough.
    """
    ngrams = NgramIndex(text, len(params.pseudocounts), params.window, PLACES)
    tokens: list[int] = []
    parents: list[int] = []
    expected: list[float] = []
    # (-mass, tie-break, parent, the branch with the token)
    heap: list[tuple[float, int, int, tuple[int, ...]]] = []
    pushed = 0

    def push(parent: int, path: tuple[int, ...], mass: float) -> float:
        """Add what may follow a node; return how likely it is that any of it does."""
        nonlocal pushed
        following: list[int] = []
        shares: list[float] = []
        mix(following, shares, ngrams.followers(path), params.pseudocounts)
        for token, share in zip(following, shares, strict=True):
            if mass * share >= params.min_node_prob:
                heappush(heap, (-mass * share, pushed, parent, (*path, token)))
                pushed += 1
        return sum(shares)

    # Where the text is new, that is seen at its first token.
    if push(-1, (), 1.0) * params.depth < params.min_expected_tokens:
        return NOTHING
    while heap and len(tokens) < num_nodes:
        negative, _, parent, path = heappop(heap)
        tokens.append(path[-1])
        parents.append(parent)
        expected.append(-negative)
        if len(path) < params.depth and path[-1] not in stops:
            push(len(tokens) - 1, path, -negative)
    if not tokens or sum(expected) < params.min_expected_tokens:
        return NOTHING
    return NgramTree(tuple(tokens), tuple(parents), tuple(expected))


def ngram_block(
    text: Sequence[int], base: Base, num_tokens: int, params: NgramParams, stops: Set[int]
) -> DraftBlock | None:
    """Return a text's own tree of up to num_tokens nodes as a block.

    None where too few of them can be expected to be accepted.
    """
    if num_tokens <= 0:
        return None
    tree = ngram_tree(text, num_tokens, params, stops)
    if not tree.tokens:
        return None
    trunk = first_branch(tree.parents)
    stopped = tree.tokens[trunk[-1]] in stops
    return DraftBlock(
        base,
        tree.tokens,
        () if is_path(tree.parents) else tree.parents,
        NGRAM,
        generated_len=len(trunk) - stopped,
        expected=tree.expected,
    )
