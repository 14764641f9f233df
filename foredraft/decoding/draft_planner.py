"""What to request of a drafter, whoever leads the round: orchestrator or verifier. Pure.

The rules, in the order in which they apply:

1. The text's own n-grams come first: where enough of their tree can be expected to be accepted, it
   is the draft, and no drafter is asked.
2. A round commits one token more than it accepts, so the last wanted token is never drafted.
3. A draft fits into the drafter's context and its largest block.
4. Nothing is drafted after a stop token, be it only a predicted one.
5. Of a prefix, a request sends only what the drafter's stream does not have.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from foredraft.decoding.drafter_view import DrafterView
from foredraft.decoding.outcomes import Outcome
from foredraft.limits import MAX_DRAFT
from foredraft.messages import DraftBlock, Propose, ProposeAhead
from foredraft.ngram.params import NgramParams
from foredraft.ngram.tree import ngram_block
from foredraft.types import Base


class NgramDraft(NamedTuple):
    """A draft made of the text's n-grams, of the k tokens that were requested at most."""

    k: int
    block: DraftBlock


class DraftRequest(NamedTuple):
    """A request to send on a drafter's stream, and the stream's view after it."""

    request: Propose
    view: DrafterView


class AheadRequest(NamedTuple):
    """A request for drafts of predicted outcomes, and the stream's view after it."""

    request: ProposeAhead
    view: DrafterView


@dataclass(frozen=True, slots=True)
class DraftPlanner:
    """Plans the drafts after one committed prefix.

    tokens are the prefix's, base names it; end is the longest that the text can become, in tokens.
    view is what the drafter's stream has, None without a drafter; ngram is how n-gram trees are
    grown, None if they are not; max_k is the most draft tokens, all nodes of a tree, of a round.
    """

    tokens: Sequence[int]
    base: Base
    end: int
    stop_ids: Set[int]
    view: DrafterView | None = None
    ngram: NgramParams | None = None
    max_k: int = MAX_DRAFT

    def next(self, k: int) -> NgramDraft | DraftRequest | None:
        """Return the draft of up to k tokens after the prefix, or how to request it.

        None where no draft can be had, or none is of use.
        """
        return self._ngram_draft(k) or self._request(k)

    def after(self, outcomes: Sequence[Outcome], k: int) -> AheadRequest | None:
        """Return the request for drafts of up to k tokens after predicted outcomes, best first.

        Outcomes after which no draft is of use are left out; None if that leaves none.
        """
        if self.view is None:
            return None
        useful = [each for each in outcomes if self._count(each, k) > 0]
        if not useful:
            return None
        count = max(self._count(each, k) for each in useful)
        keep_len, append, view = self.view.name(self.tokens)
        tokens = tuple(each.tokens for each in useful)
        return AheadRequest(ProposeAhead(self.base, keep_len, append, count, tokens), view)

    def _request(self, k: int) -> DraftRequest | None:
        count = self._count(Outcome((), self.base), k)
        if self.view is None or count <= 0:
            return None
        keep_len, append, view = self.view.name(self.tokens)
        return DraftRequest(Propose(self.base, keep_len, append, count), view)

    def _count(self, outcome: Outcome, k: int) -> int:
        """Return how many of k tokens are worth drafting after an outcome; 0 or less: none."""
        if self.view is None or not self.stop_ids.isdisjoint(outcome.tokens):
            return 0
        prefix_len = outcome.base.prefix_len
        return min(self._useful(prefix_len, k), self.view.room(prefix_len))

    def _ngram_draft(self, k: int) -> NgramDraft | None:
        if self.ngram is None:
            return None
        count = self._useful(len(self.tokens), k)
        block = ngram_block(self.tokens, self.base, count, self.ngram, self.stop_ids)
        return None if block is None else NgramDraft(count, block)

    def _useful(self, prefix_len: int, k: int) -> int:
        """Return how many of k tokens drafted after a prefix could be accepted; 0 or less: none."""
        return min(k, self.max_k, self.end - prefix_len - 1)
