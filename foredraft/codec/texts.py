"""The records of streams of texts <-> protobuf, bounds checked."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft import limits
from foredraft.codec.common import (
    PROTOCOL,
    check_protocol,
    model_from_pb,
    model_to_pb,
    named,
    sampling_from_pb,
    sampling_to_pb,
)
from foredraft.codec.drafter import (
    draft_block_from_pb,
    draft_block_to_pb,
    draft_params_from_pb,
    draft_params_to_pb,
)
from foredraft.texts import KnownText, ProposeTexts, Text, TextDraft, TextsOpen, TextsOpened
from foredraft.types import Proposal, SamplingParams
from foredraft.v1 import drafter_pb2 as pb


def texts_open_to_pb(o: TextsOpen) -> pb.TextsOpen:
    return pb.TextsOpen(
        protocol=PROTOCOL,
        proposal=o.proposal,
        max_len=o.max_len,
        params=draft_params_to_pb(o.params),
    )


def texts_open_from_pb(m: pb.TextsOpen) -> TextsOpen:
    check_protocol(m.protocol)
    limits.check_range("max_len", m.max_len, 1, limits.MAX_PREFIX)
    proposal = named("proposal", Proposal, m.proposal)
    return TextsOpen(proposal, m.max_len, draft_params_from_pb(m.params))


def texts_opened_to_pb(o: TextsOpened) -> pb.TextsOpened:
    return pb.TextsOpened(
        model=model_to_pb(o.model), max_draft_tokens=o.max_draft_tokens, max_texts=o.max_texts
    )


def texts_opened_from_pb(m: pb.TextsOpened) -> TextsOpened:
    limits.check_range("max_draft_tokens", m.max_draft_tokens, 1, limits.MAX_DRAFT)
    limits.check_range("max_texts", m.max_texts, 1, limits.MAX_TEXTS)
    return TextsOpened(model_from_pb(m.model), m.max_draft_tokens, m.max_texts)


def propose_texts_to_pb(p: ProposeTexts) -> pb.ProposeTexts:
    return pb.ProposeTexts(
        texts=map(_text_to_pb, p.texts),
        num_tokens=p.num_tokens,
        ended=map(_known_to_pb, p.ended),
    )


def propose_texts_from_pb(m: pb.ProposeTexts, max_len: int, max_texts: int) -> ProposeTexts:
    """max_len and max_texts are the stream's."""
    limits.check_range("texts length", len(m.texts), 1, max_texts)
    limits.check_range("ended length", len(m.ended), 0, max_texts)
    limits.check_range("num_tokens", m.num_tokens, 1, limits.MAX_DRAFT)
    texts = tuple(_text_from_pb(text, max_len) for text in m.texts)
    ended = tuple(KnownText(each.len, each.hash) for each in m.ended)
    return ProposeTexts(texts, m.num_tokens, ended)


def text_drafts_to_pb(drafts: Sequence[TextDraft]) -> pb.TextDrafts:
    return pb.TextDrafts(drafts=map(_draft_to_pb, drafts))


def text_drafts_from_pb(m: pb.TextDrafts) -> tuple[TextDraft, ...]:
    limits.check_range("drafts length", len(m.drafts), 0, limits.MAX_TEXTS)
    return tuple(map(_draft_from_pb, m.drafts))


def _known_to_pb(known: KnownText) -> pb.KnownText:
    return pb.KnownText(len=known.length, hash=known.hash)


def _text_to_pb(text: Text) -> pb.Text:
    return pb.Text(
        known=None if text.known is None else _known_to_pb(text.known),
        append=text.append,
        sampling=None if text.sampling == SamplingParams() else sampling_to_pb(text.sampling),
    )


def _text_from_pb(m: pb.Text, max_len: int) -> Text:
    known = KnownText(m.known.len, m.known.hash) if m.HasField("known") else None
    length = (0 if known is None else known.length) + len(m.append)
    limits.check_range("texts length in tokens", length, 1, max_len)
    sampling = sampling_from_pb(m.sampling) if m.HasField("sampling") else SamplingParams()
    return Text(known, tuple(m.append), sampling)


def _draft_to_pb(draft: TextDraft) -> pb.TextDraft:
    block = None if draft.block is None else draft_block_to_pb(draft.block)
    return pb.TextDraft(block=block, unknown=draft.unknown)


def _draft_from_pb(m: pb.TextDraft) -> TextDraft:
    block = draft_block_from_pb(m.block) if m.HasField("block") else None
    return TextDraft(block, m.unknown)
