"""A drafter under test: its streams, proposals for it, and what every block must be."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import grpc

from foredraft.codec import common as codec
from foredraft.decoding.prefix import hash_prefix
from foredraft.decoding.tree import ROOT, is_tree
from foredraft.rpc.token import shown
from foredraft.v1 import common_pb2, drafter_pb2, drafter_pb2_grpc
from foredraft_cli.conformance.suite import Talk, require, sample_text, talk


class DrafterPeer:
    """A drafter under test, called with a token if there is one. Its info describes it."""

    def __init__(self, channel: grpc.aio.Channel, token: str = "") -> None:
        self._stub = drafter_pb2_grpc.DrafterServiceStub(channel)
        self._metadata = shown(token)
        self.info = drafter_pb2.DrafterInfoResponse()

    async def look(self) -> None:
        """Ask what it is."""
        self.info = await self._stub.DrafterInfo(
            drafter_pb2.DrafterInfoRequest(), metadata=self._metadata
        )

    def stream(self) -> AbstractAsyncContextManager[Talk]:
        """Open a stream."""
        return talk(partial(self._stub.Draft, metadata=self._metadata))

    def texts(self) -> AbstractAsyncContextManager[Talk]:
        """Open a stream of texts."""
        return talk(partial(self._stub.DraftTexts, metadata=self._metadata))

    @property
    def prefix(self) -> tuple[int, ...]:
        """A text of its vocabulary."""
        return sample_text(self.info.model)

    def opening(self, session_id: str, prefix: Sequence[int], **fields: Any) -> Any:
        """An open of its first way to propose, with room for more text."""
        asked: dict[str, Any] = {
            "protocol": codec.PROTOCOL,
            "session_id": session_id,
            "prefix": prefix,
            "proposal": self.info.offers[0].proposal,
            "max_len": min(self.info.model.max_len, len(prefix) + 64),
            "sampling": common_pb2.SamplingParams(top_p=1.0, seed=7),
            "num_guesses": 4,
        }
        opening = drafter_pb2.DraftOpen(**(asked | fields))
        return drafter_pb2.DraftRequest(open=opening)


def proposing(
    session: str, prefix: Sequence[int], keep: int, count: int, number: int = 0, **fields: Any
) -> Any:
    """A propose after prefix, of which the stream has the first keep tokens."""
    asked: dict[str, Any] = {
        "base": base_of(session, prefix, number),
        "keep_len": keep,
        "append": prefix[keep:],
    }
    propose = drafter_pb2.Propose(num_tokens=count, **(asked | fields))
    return drafter_pb2.DraftRequest(propose=propose)


def base_of(session: str, prefix: Sequence[int], number: int) -> common_pb2.Base:
    return common_pb2.Base(
        session_id=session,
        round=number,
        prefix_len=len(prefix),
        prefix_hash=hash_prefix(prefix),
    )


def check_block(peer: DrafterPeer, block: Any, base: Any, most: int) -> None:
    """Raise Broken unless a block answers a request for at most so many tokens at base."""
    vocab, count = peer.info.model.vocab_size, len(block.tokens)
    require(block.base == base, f"the block names the base {block.base}, asked was {base}")
    require(count <= most, f"{count} tokens came, {most} were asked for")
    require(all(token < vocab for token in block.tokens), "a token is outside the vocabulary")
    parents = list(block.parents)
    require(not parents or is_tree(parents, count), f"parents {parents} are no tree")
    for guess in block.guesses:
        inside = ROOT <= guess.node < count and guess.token < vocab
        require(inside and 0 <= guess.probability <= 1, f"the guess {guess} is about no outcome")
    expected = list(block.expected)
    require(len(expected) in (0, count), f"{len(expected)} estimates for {count} tokens")
    require(all(0 <= each <= 1 for each in expected), "an estimate is no probability")
    require(len(block.q) in (0, count), f"{len(block.q)} distributions for {count} tokens")
    for token, q in zip(block.tokens, block.q, strict=False):
        require(token in q.tokens, "a token was drawn from a distribution that lacks it")
        mass = sum(q.weights)
        require(len(q.tokens) == len(q.weights) and 0 < mass < 1 << 32, "weights have no sum")


async def opened(peer: DrafterPeer, stream: Talk, session: str, **fields: Any) -> Any:
    """Open a session on a stream; return what the drafter answers."""
    await stream.send(peer.opening(session, peer.prefix, **fields))
    return await stream.answer("opened")
