"""A verifier under test: its streams, rounds for it, and what every verdict must be."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import grpc

from foredraft.codec import common as codec
from foredraft.decoding.prefix import hash_prefix
from foredraft.rpc.token import shown
from foredraft.v1 import common_pb2, verifier_pb2, verifier_pb2_grpc
from foredraft_cli.conformance.suite import Talk, require, sample_text, talk

TOKENS = 8
_SEED = 11
GREEDY = common_pb2.SamplingParams(top_p=1.0, seed=_SEED)
SAMPLED = common_pb2.SamplingParams(temperature=0.8, top_p=1.0, seed=_SEED)


class VerifierPeer:
    """A verifier under test, called with a token if there is one. Its info describes it."""

    def __init__(self, channel: grpc.aio.Channel, token: str = "") -> None:
        self._stub = verifier_pb2_grpc.VerifierServiceStub(channel)
        self._metadata = shown(token)
        self.info = verifier_pb2.VerifierInfoResponse()

    async def look(self) -> None:
        """Ask what it is."""
        self.info = await self._stub.VerifierInfo(
            verifier_pb2.VerifierInfoRequest(), metadata=self._metadata
        )

    def stream(self) -> AbstractAsyncContextManager[Talk]:
        """Open a stream."""
        return talk(partial(self._stub.Verify, metadata=self._metadata))

    @property
    def exact(self) -> bool:
        """Whether its tokens are the same in every batch."""
        return bool(self.info.model.numerics == "exact")

    @property
    def prefix(self) -> tuple[int, ...]:
        """A text of its vocabulary."""
        return sample_text(self.info.model)

    def opening(self, session_id: str, prefix: Sequence[int], **fields: Any) -> Any:
        """An open with room for a few tokens."""
        asked: dict[str, Any] = {
            "protocol": codec.PROTOCOL,
            "session_id": session_id,
            "prefix": prefix,
            "sampling": GREEDY,
            "max_new_tokens": 4 * TOKENS,
            "max_draft": TOKENS,
        }
        return verifier_pb2.VerifyRequest(open=verifier_pb2.VerifyOpen(**(asked | fields)))

    async def plain(self, sampling: common_pb2.SamplingParams = GREEDY) -> tuple[int, ...]:
        """The next tokens of the text, decoded plainly."""
        async with self.stream() as stream:
            await opened(self, stream, sampling=sampling)
            return await continued(stream, self.prefix, TOKENS, 0)


def round_of(
    prefix: Sequence[int], number: int, session: str = "s", **fields: Any
) -> verifier_pb2.VerifyRequest:
    """A round behind prefix."""
    base = common_pb2.Base(
        session_id=session,
        round=number,
        prefix_len=len(prefix),
        prefix_hash=hash_prefix(prefix),
    )
    asked: dict[str, Any] = {"base": base, **fields}
    return verifier_pb2.VerifyRequest(round=verifier_pb2.Round(**asked))


async def opened(peer: VerifierPeer, stream: Talk, **fields: Any) -> Any:
    """Open a session on a stream; return what the verifier answers."""
    await stream.send(peer.opening("s", peer.prefix, **fields))
    return await stream.answer("opened")


async def decided(peer: VerifierPeer, stream: Talk, request: verifier_pb2.VerifyRequest) -> Any:
    """Return the verdict on a round; raise Broken unless it fits."""
    await stream.send(request)
    verdict, asked = await stream.answer("verdict"), request.round
    vocab, most = peer.info.model.vocab_size, 1 if asked.draft else asked.plain_steps
    require(verdict.base == asked.base, f"the verdict names the base {verdict.base}")
    bought = len(asked.draft) - verdict.left_out
    require(0 <= verdict.accepted <= bought, f"{verdict.accepted} of {bought} tokens accepted")
    fault = f"{len(verdict.next_tokens)} tokens of its own where 1 to {most} were due"
    require(1 <= len(verdict.next_tokens) <= most, fault)
    inside = all(token < vocab for token in verdict.next_tokens)
    require(inside, "a token is outside the vocabulary")
    kept, at = list(verdict.path) or list(range(verdict.accepted)), -1
    require(len(kept) == verdict.accepted, "the path has another length than what is accepted")
    parents = list(asked.parents) or list(range(-1, len(asked.draft) - 1))
    for node in kept:
        require(node < bought and parents[node] == at, f"the path {kept} is no branch")
        at = node
    return verdict


async def continued(
    stream: Talk, prefix: tuple[int, ...], count: int, number: int
) -> tuple[int, ...]:
    """Return count more tokens, decoded plainly in as many rounds as it takes."""
    text = prefix
    while len(text) < len(prefix) + count:
        left = len(prefix) + count - len(text)
        await stream.send(round_of(text, number, plain_steps=left))
        text += tuple((await stream.answer("verdict")).next_tokens)
        number += 1
    return text[len(prefix) :]
