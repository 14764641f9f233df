"""The drafts of a session, until they are verified or of no more use. Pure.

A block may arrive after its prefix has grown, or before it has come true: `reconcile` alone
decides what is left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from foredraft.decoding.committed_prefix import CommittedPrefix
from foredraft.decoding.tree import ROOT, below, explicit, follow, is_path, is_tree
from foredraft.limits import MAX_OUTCOMES
from foredraft.messages import DraftBlock
from foredraft.types import Candidates, Guess
from orchestrator.session.compatibility import drop_unknown_tokens

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Draft:
    """The part of a block that is still ahead of the committed tokens.

    tokens, parents, q and expected are what to verify, guesses the outcomes that may come of it.
    requested_k tokens were requested at most; trimmed counts the block's tokens that were committed
    meanwhile.
    """

    requested_k: int
    block: DraftBlock
    trimmed: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    guesses: tuple[Guess, ...]
    q: tuple[Candidates, ...]
    expected: tuple[float, ...] = ()


class Arrived(NamedTuple):
    """A block, and how many tokens were requested."""

    requested_k: int
    block: DraftBlock


def is_readable(block: DraftBlock, vocab_size: int) -> bool:
    """Return whether a block is a path or a tree, and its guesses are about it, all of tokens below
    vocab_size.
    """
    guessed = (guess.token for guess in block.guesses)
    known = all(0 <= token < vocab_size for token in (*block.tokens, *guessed))
    count = len(block.tokens)
    placed = all(ROOT <= guess.node < count for guess in block.guesses)
    return known and placed and (not block.parents or is_tree(block.parents, count))


def whole_draft(arrived: Arrived) -> Draft | None:
    """Return the draft that is a whole block, None if that has no tokens."""
    block = arrived.block
    whole = (block.tokens, block.parents, block.guesses, block.q, block.expected)
    return Draft(arrived.requested_k, block, 0, *whole) if block.tokens else None


def reconcile(prefix: CommittedPrefix, arrived: Arrived) -> Draft | None:
    """Return what is left of a readable block after the committed tokens, None if it is dead.

    The block's prefix must be one that the committed prefix grew from, by length and hash; the
    tokens committed since must be a branch of it, and are trimmed. With nothing left below them it
    is dead, too.
    """
    requested_k, block = arrived
    if not prefix.starts_with(block.base):
        return None
    since = prefix.tokens[block.base.prefix_len :]
    if not since:
        return whole_draft(arrived)
    parents = explicit(block.parents, len(block.tokens))
    node = follow(block.tokens, parents, since)
    if node is None:
        return None
    nodes, left = below(parents, node)
    if not nodes:
        return None
    tokens = tuple(block.tokens[i] for i in nodes)
    path = is_path(left)
    q = tuple(block.q[i] for i in nodes) if path and block.q else ()
    expected = tuple(_given(block.expected, i, node) for i in nodes) if block.expected else ()
    guesses = _guesses_below(block, node, nodes)
    return Draft(requested_k, block, len(since), tokens, () if path else left, guesses, q, expected)


def _guesses_below(block: DraftBlock, node: int, nodes: Sequence[int]) -> tuple[Guess, ...]:
    """Return the guesses that are left once a node came true, about the nodes below it."""
    place = {node: ROOT} | {each: i for i, each in enumerate(nodes)}
    before = block.expected[node] if block.expected else 1.0
    return tuple(
        Guess(place[last], token, min(1.0, probability / before) if before > 0 else 0.0)
        for last, token, probability in block.guesses
        if last in place
    )


def _given(expected: tuple[float, ...], node: int, before: int) -> float:
    """Return how likely a node is, given one before it that came true."""
    return min(1.0, expected[node] / expected[before]) if expected[before] > 0 else 0.0


class SpeculationCache(Generic[V]):
    """Values of at most `capacity` prefixes, the newest ones, keyed by prefix hash."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[int, V] = {}

    def put(self, prefix_hash: int, value: V) -> None:
        """Store a value; the oldest one goes if there is no room."""
        self._values.pop(prefix_hash, None)
        self._values[prefix_hash] = value
        if len(self._values) > self._capacity:
            del self._values[next(iter(self._values))]

    def get(self, prefix_hash: int) -> V | None:
        """Return the value of a prefix, None if there is none."""
        return self._values.get(prefix_hash)

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()


class DraftBuffer:
    """One block for the committed prefix at most, and those for predicted ones."""

    def __init__(self, prefix: CommittedPrefix) -> None:
        self._prefix = prefix
        self._ready: Arrived | None = None
        self._ahead: SpeculationCache[Arrived] = SpeculationCache(MAX_OUTCOMES)
        # The hash of the prefix after which the drafter had nothing to propose.
        self._barren: int | None = None

    @property
    def request_is_vain(self) -> bool:
        """Whether the drafter had nothing to propose after the committed prefix."""
        return self._barren == self._prefix.hash

    def put(self, arrived: Arrived, vocab_size: int) -> None:
        """Keep a block if it is of use now or for a predicted prefix."""
        block = arrived.block
        if block.base.prefix_len > len(self._prefix):
            self._ahead.put(block.base.prefix_hash, arrived)
        elif self._left_of(arrived, vocab_size) is not None:
            self._ready = arrived
        elif not block.tokens:
            self._barren = block.base.prefix_hash

    def put_back(self, draft: Draft) -> None:
        """Make a draft's block the one for the committed prefix again."""
        self._ready = Arrived(draft.requested_k, draft.block)

    def draft(self, vocab_size: int) -> Draft | None:
        """Return what is left of a block after the committed prefix, None if there is none.

        Tokens beyond the target's vocabulary are left out.
        """
        for arrived in (self._ahead.get(self._prefix.hash), self._ready):
            draft = self._left_of(arrived, vocab_size) if arrived else None
            if draft is not None:
                return draft
        return None

    def clear(self) -> None:
        """Drop all of them: a round has begun."""
        self._ready = None
        self._ahead.clear()

    def _left_of(self, arrived: Arrived, vocab_size: int) -> Draft | None:
        block = drop_unknown_tokens(arrived.block, vocab_size)
        return reconcile(self._prefix, arrived._replace(block=block))
