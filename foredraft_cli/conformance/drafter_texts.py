"""The rules of DraftTexts, which a drafter with max_texts 0 need not keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from foredraft.codec import common as codec
from foredraft.decoding.prefix import hash_prefix
from foredraft.v1 import drafter_pb2 as pb
from foredraft_cli.conformance.drafter_peer import DrafterPeer, check_block
from foredraft_cli.conformance.suite import Rule, Talk, refused, require

_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_COUNT = 2


def _opening(peer: DrafterPeer, **fields: Any) -> Any:
    asked: dict[str, Any] = {
        "protocol": codec.PROTOCOL,
        "proposal": peer.info.offers[0].proposal,
        "max_len": min(peer.info.model.max_len, len(peer.prefix) + 64),
    }
    return pb.DraftTextsRequest(open=pb.TextsOpen(**(asked | fields)))


def _known(text: Sequence[int]) -> Any:
    return pb.KnownText(len=len(text), hash=hash_prefix(text))


def _asking(*texts: Any, count: int = _COUNT) -> Any:
    return pb.DraftTextsRequest(propose=pb.ProposeTexts(texts=texts, num_tokens=count))


async def _opened(peer: DrafterPeer, stream: Talk) -> Any:
    await stream.send(_opening(peer))
    return await stream.answer("opened")


async def _drafted(
    peer: DrafterPeer, stream: Talk, asked: Any, texts: Sequence[Sequence[int]]
) -> list[Any]:
    """Ask for texts, whose drafts must be on what they are; return the drafts."""
    await stream.send(asked)
    drafts = list((await stream.answer("drafts")).drafts)
    require(len(drafts) == len(texts), f"{len(drafts)} drafts came for {len(texts)} texts")
    for text, draft in zip(texts, drafts, strict=True):
        if draft.HasField("block"):
            base = draft.block.base
            right = (base.prefix_len, base.prefix_hash) == (len(text), hash_prefix(text))
            require(right, f"a draft names the base {base}, which is not its text")
            check_block(peer, draft.block, base, _COUNT)
    return drafts


async def _texts(peer: DrafterPeer) -> None:
    one, other = peer.prefix, peer.prefix[::-1]
    async with peer.texts() as stream:
        opened = await _opened(peer, stream)
        require(opened.model == peer.info.model, "open answers with another model than Info")
        agree = opened.max_texts == peer.info.max_texts
        require(agree, "open answers with another max_texts than Info")
        asked = _asking(pb.Text(append=one), pb.Text(append=other))
        await _drafted(peer, stream, asked, [one, other])
        grown = [(*other, one[0]), one]
        asked = _asking(
            pb.Text(known=_known(other), append=one[:1]), pb.Text(known=_known(one), append=())
        )
        for draft in await _drafted(peer, stream, asked, grown):
            require(not draft.unknown, "a text that was just sent is unknown")


async def _unknown(peer: DrafterPeer) -> None:
    text, never = peer.prefix, peer.prefix[1:]
    async with peer.texts() as stream:
        await _opened(peer, stream)
        await _drafted(peer, stream, _asking(pb.Text(append=text)), [text])
        asked = _asking(pb.Text(known=_known(never), append=text[:1]), pb.Text(known=_known(text)))
        lost, found = await _drafted(peer, stream, asked, [(*never, text[0]), text])
        require(lost.unknown, "a text that was never sent is not reported as unknown")
        require(not lost.HasField("block"), "a text that was never sent has a draft")
        require(not found.unknown, "a text is unknown because another one is")


async def _fields(peer: DrafterPeer) -> None:
    text = peer.prefix
    most = peer.info.offers[0].max_draft_tokens
    wrong = {
        "no texts": _asking(),
        "a new text without tokens": _asking(pb.Text()),
        "a token outside the vocabulary": _asking(pb.Text(append=[peer.info.model.vocab_size])),
        "a draft of no tokens": _asking(pb.Text(append=text), count=0),
        "a draft of more tokens than offered": _asking(pb.Text(append=text), count=most + 1),
        "a second open": _opening(peer),
    }
    for what, message in wrong.items():
        async with peer.texts() as stream:
            await _opened(peer, stream)
            await stream.send(message)
            await refused(stream, _INVALID, what)
    opens: dict[str, dict[str, Any]] = {
        "an unknown protocol": {"protocol": 99},
        "an unknown proposal": {"proposal": "dowsing"},
        "a max_len of 0": {"max_len": 0},
    }
    for what, fields in opens.items():
        async with peer.texts() as stream:
            await stream.send(_opening(peer, **fields))
            await refused(stream, _INVALID, what)


RULES: tuple[Rule[DrafterPeer], ...] = (
    Rule("texts", "texts are drafted for in their order and found by length and hash", _texts),
    Rule("texts_unknown", "a text that is not known is answered as unknown, alone", _unknown),
    Rule("texts_fields", "a field of DraftTexts out of range is INVALID_ARGUMENT", _fields),
)
