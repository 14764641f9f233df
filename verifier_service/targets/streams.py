"""How a session's tokens become rows of a forward pass: one stream left to right, or two. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from foredraft.decoding.tree import ROOT, depths, explicit, is_path
from foredraft.layout import Layout
from foredraft.types import ModelInfo
from verifier_service.models.port import Segment


class Streams(Protocol):
    """A kind of text of at most `length` tokens; the first `cached` have KV, the last has none.

    prefills says whether tokens before the last may get theirs ahead of a round, in any chunks.
    """

    prefills: bool

    @property
    def length(self) -> int:
        """How many tokens the text may come to, with the one that a draft's last node gives."""

    def most_rows(self, commit_limit: int, max_draft: int) -> int:
        """Return the most rows of KV that a text of so many tokens needs, the draft included."""

    def round_rows(self, uncached: int, drafted: int) -> int:
        """Return how many rows a round takes, with so many of its tokens yet without KV."""

    def round(
        self,
        blocks: Sequence[int],
        cached: int,
        tokens: Sequence[int],
        draft: Sequence[int],
        parents: Sequence[int],
        wanted: int,
    ) -> Segment:
        """Return a round's rows: the tokens without KV, the draft, and what else they need.

        The last 1 + len(draft) of the `wanted` logits are those after the text and each node.
        """


@dataclass(frozen=True)
class LeftToRight:
    """A row holds a token and gives the logits of the next one."""

    length: int
    prefills = True

    def most_rows(self, commit_limit: int, max_draft: int) -> int:
        """Return the rows of the text, of a draft and of the token after it."""
        return min(commit_limit + max_draft + 1, self.length)

    def round_rows(self, uncached: int, drafted: int) -> int:
        """Return how many rows decide; prefill brings the tokens before the last."""
        return 1 + drafted

    def round(
        self,
        blocks: Sequence[int],
        cached: int,
        tokens: Sequence[int],
        draft: Sequence[int],
        parents: Sequence[int],
        wanted: int,
    ) -> Segment:
        """Return the tokens without KV and the draft."""
        tree = () if is_path(parents) else parents
        return Segment(blocks, cached, [*tokens[cached:], *draft], wanted, tree)


@dataclass(frozen=True)
class TwoStreams:
    """Content rows hold tokens; a query row asks for the token at a position (ASSD, App. D).

    Query rows come last. To the attention they are leaves of the draft tree, so that one sees the
    text, its own branch and itself, and no content sees it; their KV is written over later. The
    prompt's rows see each other (App. F.4), so they come in one pass.
    """

    layout: Layout
    query_token: int
    prefills = False

    @property
    def length(self) -> int:
        """The layout's."""
        return self.layout.length

    def most_rows(self, commit_limit: int, max_draft: int) -> int:
        """Return the rows of the text and of a draft, and their queries."""
        return min(commit_limit + max_draft, self.length) + 1 + max_draft

    def round_rows(self, uncached: int, drafted: int) -> int:
        """Return how many rows there are: content, and a query after the text and each node."""
        return uncached + drafted + 1 + drafted

    def round(
        self,
        blocks: Sequence[int],
        cached: int,
        tokens: Sequence[int],
        draft: Sequence[int],
        parents: Sequence[int],
        wanted: int,
    ) -> Segment:
        """Return the content without KV, the draft, and as many queries."""
        tree, sigma = explicit(parents, len(draft)), self.layout.positions
        orders = [len(tokens) - 1 + depth for depth in depths(tree)]
        queries = [len(tokens), *(order + 1 for order in orders)]
        return Segment(
            blocks,
            cached,
            [*tokens[cached:], *draft, *[self.query_token] * len(queries)],
            wanted,
            [*tree, ROOT, *range(len(draft))],
            0 if cached else len(self.layout.given),
            [sigma[order] for order in (*range(cached, len(tokens)), *orders, *queries)],
        )


def streams_of(layout: Layout | None, info: ModelInfo) -> Streams:
    """Return how a model reads a text, which has a layout if the model is an any-subset one."""
    if layout is None:
        return LeftToRight(info.max_len)
    assert info.mask_token_id is not None
    return TwoStreams(layout, info.mask_token_id)
