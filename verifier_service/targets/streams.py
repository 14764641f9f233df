"""How a session's tokens become rows of a forward pass: one stream left to right, or two. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from foredraft.decoding.tree import ROOT, depths, explicit
from foredraft.layout import Layout
from foredraft.limits import MAX_DRAFT
from foredraft.types import ModelInfo
from verifier_service.models.port import Segment


class Streams(Protocol):
    """A kind of text of at most `length` tokens; the first `cached` have KV, the last has none.

    prefills is whether tokens before the last may get theirs ahead of a round, in any chunks;
    token_rows is how many rows a draft token takes.
    """

    prefills: bool
    token_rows: int

    @property
    def length(self) -> int:
        """How many tokens the text may come to, with the one that a draft's last node gives."""

    def most_rows(self, commit_limit: int, max_draft: int, max_ahead: int) -> int:
        """Return the most rows of KV for a text of so many tokens and what a round adds."""

    def room(self, tokens: int) -> int:
        """Return how many draft tokens there are places for after a text of so many."""

    def round_rows(self, uncached: int, drafted: int, ahead: int) -> int:
        """Return how many rows a round takes, with so many of its tokens yet without KV."""

    def rows(self, content: Segment, drafted: int, ahead: int) -> Segment:
        """Return a round's rows, given its tokens without KV and, as the last ones, the draft.

        As many logits are wanted of it, the last 1 + drafted + ahead for what follows the text and
        each node of the draft, and for the positions after the next one, given the text alone.
        """


@dataclass(frozen=True)
class LeftToRight:
    """A row holds a token and gives the logits of the next one."""

    length: int
    prefills = True
    token_rows = 1

    def most_rows(self, commit_limit: int, max_draft: int, max_ahead: int) -> int:
        """Return the rows of the text, of a draft and of the token after it."""
        return min(commit_limit + max_draft + 1, self.length)

    def room(self, tokens: int) -> int:
        """Return the places that are left, but for the token after the draft."""
        return self.length - tokens - 1

    def round_rows(self, uncached: int, drafted: int, ahead: int) -> int:
        """Return how many rows decide; prefill brings the tokens before the last."""
        return 1 + drafted

    def rows(self, content: Segment, drafted: int, ahead: int) -> Segment:
        """Return the content as it is."""
        return content


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
    token_rows = 2

    @property
    def length(self) -> int:
        """The layout's."""
        return self.layout.length

    def most_rows(self, commit_limit: int, max_draft: int, max_ahead: int) -> int:
        """Return the rows of the text and of a draft, and their queries."""
        return commit_limit + max_draft + 1 + max_draft + max_ahead

    def room(self, tokens: int) -> int:
        """Return the most there can be: a tree's tokens have the places of a path."""
        return MAX_DRAFT

    def round_rows(self, uncached: int, drafted: int, ahead: int) -> int:
        """Return how many rows there are: content, and a query after the text and each node."""
        return uncached + drafted + 1 + drafted + ahead

    def rows(self, content: Segment, drafted: int, ahead: int) -> Segment:
        """Return the content, a query after it and each node of the draft, and those ahead."""
        start, sigma = content.start, self.layout.positions
        known = start + len(content.tokens) - drafted
        tree = explicit(content.parents, drafted)
        nodes = [known - 1 + depth for depth in depths(tree)]
        queries = [known, *(order + 1 for order in nodes)]
        queries += range(known + 1, known + 1 + ahead)
        return content._replace(
            tokens=[*content.tokens, *[self.query_token] * len(queries)],
            parents=[*tree, ROOT, *range(drafted), *[ROOT] * ahead],
            mutual=0 if start else len(self.layout.given),
            positions=[sigma[order] for order in (*range(start, known), *nodes, *queries)],
        )


def streams_of(layout: Layout | None, info: ModelInfo) -> Streams:
    """Return how a model reads a text, which has a layout if the model is an any-subset one."""
    if layout is None:
        return LeftToRight(info.max_len)
    assert info.mask_token_id is not None
    return TwoStreams(layout, info.mask_token_id)
