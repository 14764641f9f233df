"""What a target that reads left to right drafts for itself: trees of the text's own n-grams.

In plain rounds. No drafter is asked and no message sent, so such a draft costs the rows that are
bought of it and nothing else: text that repeats itself is decoded faster at every load.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from foredraft.decoding.tree import ROOT
from foredraft.ngram.params import NgramParams
from foredraft.ngram.tree import NOTHING, NgramTree
from foredraft.types import NO_PRICE, Price
from verifier_service.rules.ngrams import TreeGrower
from verifier_service.rules.rules import Logits
from verifier_service.rules.sampling import RowSampling
from verifier_service.schedule.calibration import Calibration

# A row must bring so many times what it takes: to grow, to buy and to draw costs something, too,
# and the nodes that are offered are those that are overrated most.
_MARGIN = 2.0
# For how many passes no tree is grown once nothing of one was accepted: twice as many each time, at
# most so many, and a share of the sessions of a pass. Alone, a tree takes little of a pass; with
# many sessions hardly any row pays, and trees delay all of them.
_LONGEST_REST, _REST_PER_SESSION = 16, 0.25


@dataclass(slots=True)
class NgramsAccepted:
    """What came of an engine's n-gram drafts at a temperature: new sessions begin with that."""

    all: Calibration = field(default_factory=Calibration)


class OwnNgrams:
    """Drafts of at most `most_tokens` tokens, from the text's n-grams as params have it."""

    most_ahead = 0
    beside_s = 0.0

    def __init__(
        self,
        most_tokens: int,
        params: NgramParams,
        stops: Set[int],
        trees: TreeGrower,
        accepted: NgramsAccepted,
    ) -> None:
        self.most_tokens = most_tokens
        self._others = accepted
        self._grow = trees(most_tokens, params, stops)
        self._text = array("i")
        self._accepted = Calibration()
        self._expected: tuple[float, ...] = ()
        # Passes without a tree: that are left, that are next, and the most.
        self._rest, self._next_rest, self._most_rest = 0, 1, 0

    def draft(self, depth: int, price: Price = NO_PRICE) -> NgramTree:
        """Return the likeliest tree, as likely as such trees were in this text."""
        tree = NOTHING if self._rest else self._tree(depth, price)
        self._expected = tree.expected
        self._most_rest = min(_LONGEST_REST, int(_REST_PER_SESSION * price.sessions))
        if not tree.tokens:
            return NOTHING
        scale = self._scale
        return tree._replace(expected=tuple(min(1.0, scale * each) for each in tree.expected))

    def _tree(self, depth: int, price: Price) -> NgramTree:
        if depth <= 0:
            return NOTHING
        return self._grow(self._text, depth, _MARGIN * price.least_chance / self._scale)

    @property
    def _scale(self) -> float:
        return self._accepted.scale_after(self._others.all.scale)

    def rows_ahead(self, drafted: int, room: int) -> int:
        """Return 0."""
        return 0

    def decided(
        self, drafted: int, tokens: Sequence[int], ahead: Logits, draws: Sequence[RowSampling]
    ) -> None:
        """Learn how many of the verified tokens were accepted."""
        verified, kept = self._expected[:drafted], len(tokens) - 1
        if self._rest:
            self._rest -= 1
        elif kept:
            self._next_rest = 1
        else:
            self._rest = max(0, min(self._next_rest, self._most_rest))
            self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
        self._accepted = self._accepted.after(verified, kept)
        self._others.all = self._others.all.after(verified, kept)

    def extend(self, tokens: Sequence[int]) -> None:
        """Follow the text."""
        self._text.extend(tokens)

    def forget(self) -> None:
        """Do nothing: a draft is of the text as it is."""

    def foreseen(self, tokens: Sequence[int], price: Price) -> int:
        """Return how many of the next tokens the tree of now has, one after the other."""
        tree, at, found = self._tree(len(tokens), price), ROOT, 0
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if found < len(tokens) and parent == at and token == tokens[found]:
                at, found = node, found + 1
        return found
