"""An any-subset target as a model of joints: query rows over content whose KV is kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from bench.assd.port import Logits, Query
from foredraft.decoding.tree import ROOT
from foredraft.layout import Layout
from verifier_service.models.port import Segment, TargetModel, alloc


class PagedJoint:
    """One text at a time over a verifier's model; KV of content that stayed is used again.

    A query row that sees all but some of the content hangs at the token it sees last, as leaves of
    a draft tree do, so that one forward pass answers for stars and chains alike.
    """

    def __init__(self, model: TargetModel, length: int, query_token: int) -> None:
        """Hold KV for texts of `length` tokens and as many rows of drafts and queries."""
        self._model = model
        self._query_token = query_token
        self._blocks = alloc(model, 3 * length)
        self._layout: Layout | None = None
        self._cached: list[int] = []

    def logits(self, layout: Layout, content: Sequence[int], queries: Sequence[Query]) -> Logits:
        """Return the queries' rows."""
        if layout != self._layout:
            self._layout, self._cached = layout, []
        sigma, prompt = layout.positions, len(layout.given)
        known = min(query.seen for query in queries)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self._cached, content, strict=False))
        # A prompt's rows see each other and come in one pass; the last known token's comes again.
        start = min(sum(1 for _ in same), known - 1)
        start = 0 if start < prompt - 1 else start
        drafted = len(content) - known
        parents = [*range(ROOT, drafted - 1), *(query.seen - known - 1 for query in queries)]
        segment = Segment(
            self._blocks,
            start,
            [*content[start:], *[self._query_token] * len(queries)],
            len(queries),
            parents,
            prompt if start == 0 else 0,
            [*sigma[start : len(content)], *(sigma[query.order] for query in queries)],
        )
        found = self._model.forward([segment])
        self._cached = list(content)
        return found

    def forget(self) -> None:
        """Drop the text: the next one is read from its beginning."""
        self._layout = None

    def close(self) -> None:
        """Give the blocks back."""
        self._model.pool.give(self._blocks)
