"""Records of a stream that drafts for many texts, each addressed by the hash of what was sent."""

from __future__ import annotations

from typing import NamedTuple

from foredraft.messages import DraftBlock
from foredraft.types import DraftParams, ModelInfo, Proposal, SamplingParams


class KnownText(NamedTuple):
    """A text by what it was when it was last sent: its length in tokens, and its prefix hash."""

    length: int
    hash: int


class TextsOpen(NamedTuple):
    """How all texts of a stream are drafted for; none is longer than max_len tokens."""

    proposal: Proposal
    max_len: int
    params: DraftParams = DraftParams()


class Text(NamedTuple):
    """A text: what of it is known, None for nothing, and the tokens that follow."""

    known: KnownText | None
    append: tuple[int, ...]
    sampling: SamplingParams = SamplingParams()


class ProposeTexts(NamedTuple):
    """Asks for num_tokens tokens behind each of some texts; ended ones are forgotten."""

    texts: tuple[Text, ...]
    num_tokens: int
    ended: tuple[KnownText, ...] = ()


class TextsOpened(NamedTuple):
    """A drafter's answer to open; it remembers the max_texts most recent texts."""

    model: ModelInfo
    max_draft_tokens: int
    max_texts: int


class TextDraft(NamedTuple):
    """What is drafted behind one text: nothing, if block is None; unknown: send the whole text."""

    block: DraftBlock | None = None
    unknown: bool = False
