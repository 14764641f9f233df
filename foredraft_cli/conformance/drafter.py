"""The rules of DrafterService, as a drafter of anybody's must keep them."""

from __future__ import annotations

from typing import Any

import grpc

from foredraft.codec import common as codec
from foredraft.v1 import common_pb2, drafter_pb2
from foredraft_cli.conformance.drafter_peer import (
    DrafterPeer,
    base_of,
    check_block,
    opened,
    proposing,
)
from foredraft_cli.conformance.suite import Broken, Rule, refused, require

_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_OPENS = 40
_ASKED = 4


async def _info(peer: DrafterPeer) -> None:
    model = peer.info.model
    require(model.vocab_size > 0 and model.max_len > 0, "the model has no vocabulary or no length")
    spoken = peer.info.oldest_protocol <= codec.PROTOCOL <= peer.info.newest_protocol
    require(spoken, "the protocol of this suite is not among those spoken")
    require(peer.info.offers, "no way to propose is offered")
    least = min(offer.max_draft_tokens for offer in peer.info.offers)
    require(least > 0, "a way to propose is offered for no tokens")


async def _open(peer: DrafterPeer) -> None:
    for offer in peer.info.offers:
        async with peer.stream() as stream:
            answer = await opened(peer, stream, "open", proposal=offer.proposal)
            require(answer.model == peer.info.model, "open answers with another model than Info")
            fault = f"{offer.proposal} may draft {answer.max_draft_tokens}, offered are others"
            require(answer.max_draft_tokens == offer.max_draft_tokens, fault)


async def _first(peer: DrafterPeer) -> None:
    async with peer.stream() as stream:
        await stream.send(proposing("s", peer.prefix, 0, 1))
        await refused(stream, _INVALID, "a propose before open")


async def _once(peer: DrafterPeer) -> None:
    async with peer.stream() as stream:
        await opened(peer, stream, "s")
        await stream.send(peer.opening("s", peer.prefix))
        await refused(stream, _INVALID, "a second open")


async def _protocol(peer: DrafterPeer) -> None:
    for version in (0, 99):
        async with peer.stream() as stream:
            await stream.send(peer.opening("s", peer.prefix, protocol=version))
            await refused(stream, _INVALID, f"protocol {version}")


async def _fields(peer: DrafterPeer) -> None:
    beyond = peer.info.model.vocab_size
    wrong: dict[str, dict[str, Any]] = {
        "an empty session id": {"session_id": ""},
        "a session id of 129 characters": {"session_id": "s" * 129},
        "an empty prefix": {"prefix": ()},
        "a token outside the vocabulary": {"prefix": (*peer.prefix, beyond)},
        "an unknown proposal": {"proposal": "dowsing"},
        "a temperature below 0": {"sampling": common_pb2.SamplingParams(temperature=-1, top_p=1)},
        "a max_len below the prefix": {"max_len": 1},
        "65 guesses": {"num_guesses": 65},
    }
    for what, fields in wrong.items():
        async with peer.stream() as stream:
            fields = {"prefix": peer.prefix, "session_id": "s", **fields}
            await stream.send(peer.opening(**fields))
            await refused(stream, _INVALID, what)


async def _blocks(peer: DrafterPeer) -> None:
    for offer in peer.info.offers:
        for count in {1, min(_ASKED, offer.max_draft_tokens), offer.max_draft_tokens}:
            async with peer.stream() as stream:
                await opened(peer, stream, "s", proposal=offer.proposal)
                asked = proposing("s", peer.prefix, len(peer.prefix), count)
                await stream.send(asked)
                block = await stream.answer("block")
                check_block(peer, block, asked.propose.base, count)


async def _order(peer: DrafterPeer) -> None:
    text = peer.prefix
    async with peer.stream() as stream:
        await opened(peer, stream, "s")
        asked = []
        for number in range(_ASKED):
            grown = text + text[:number]
            keep = len(text) + max(0, number - 1)
            asked.append(proposing("s", grown, keep, 2, number))
            await stream.send(asked[-1])
        for each in asked:
            check_block(peer, await stream.answer("block"), each.propose.base, 2)


async def _rollback(peer: DrafterPeer) -> None:
    text = peer.prefix
    async with peer.stream() as stream:
        await opened(peer, stream, "s")
        for keep, prefix in ((len(text), text), (2, text[:2] + text[3:]), (0, text[::-1])):
            asked = proposing("s", prefix, keep, 2)
            await stream.send(asked)
            check_block(peer, await stream.answer("block"), asked.propose.base, 2)


async def _hash(peer: DrafterPeer) -> None:
    text = peer.prefix
    base = base_of("s", text, 0)
    base.prefix_hash ^= 1
    async with peer.stream() as stream:
        await opened(peer, stream, "s")
        await stream.send(proposing("s", text, len(text), 2, base=base))
        await refused(stream, grpc.StatusCode.FAILED_PRECONDITION, "a prefix of another hash")


async def _asked(peer: DrafterPeer) -> None:
    text, most = peer.prefix, peer.info.offers[0].max_draft_tokens
    beyond = (*text, peer.info.model.vocab_size)
    for what, message in {
        "a draft of no tokens": proposing("s", text, len(text), 0),
        "a draft of more tokens than offered": proposing("s", text, len(text), most + 1),
        "a token outside the vocabulary": proposing("s", beyond, len(text), 1),
    }.items():
        async with peer.stream() as stream:
            await opened(peer, stream, "s")
            await stream.send(message)
            await refused(stream, _INVALID, what)


async def _ahead(peer: DrafterPeer) -> None:
    text = peer.prefix
    outcomes = [text[:2], text[1:3]]
    ahead = drafter_pb2.ProposeAhead(
        base=base_of("s", text, 3),
        keep_len=len(text),
        num_tokens=2,
        outcomes=[drafter_pb2.Outcome(tokens=tokens) for tokens in outcomes],
    )
    async with peer.stream() as stream:
        await opened(peer, stream, "s")
        await stream.send(drafter_pb2.DraftRequest(propose_ahead=ahead))
        answer = await stream.answer("blocks_ahead")
        bases = [base_of("s", text + tokens, 4) for tokens in outcomes]
        require(len(answer.blocks) <= len(outcomes), "more blocks came than there are outcomes")
        for block in answer.blocks:
            require(block.base in bases, f"a block is for {block.base}, which is no outcome")
            check_block(peer, block, block.base, 2)


async def _ends(peer: DrafterPeer) -> None:
    ends = set(peer.info.model.eos_token_ids)
    for offer in peer.info.offers:
        async with peer.stream() as stream:
            await opened(peer, stream, "s", proposal=offer.proposal)
            count = offer.max_draft_tokens
            await stream.send(proposing("s", peer.prefix, len(peer.prefix), count))
            block = await stream.answer("block")
            parents = list(block.parents) or range(-1, len(block.tokens) - 1)
            behind = [p for p in parents if p >= 0 and block.tokens[p] in ends]
            require(not behind, f"{offer.proposal} drafts behind an end of text")


async def _again(peer: DrafterPeer) -> None:
    async with peer.stream() as first, peer.stream() as second:
        await opened(peer, first, "same")
        await opened(peer, second, "same")
        for stream in (second, first):
            asked = proposing("same", peer.prefix, len(peer.prefix), 2)
            await stream.send(asked)
            check_block(peer, await stream.answer("block"), asked.propose.base, 2)


async def _freed(peer: DrafterPeer) -> None:
    for number in range(_OPENS):
        async with peer.stream() as stream:
            await opened(peer, stream, f"s{number}")
            # Every other one is cancelled, by leaving.
            if number % 2:
                await stream.end()


async def _apart(peer: DrafterPeer) -> None:
    async with peer.stream() as good, peer.stream() as bad:
        await opened(peer, good, "good")
        await opened(peer, bad, "bad")
        await bad.send(proposing("bad", peer.prefix, len(peer.prefix), 0))
        if await bad.refusal() is grpc.StatusCode.OK:
            raise Broken("a bad request ended in OK")
        asked = proposing("good", peer.prefix, len(peer.prefix), 2)
        await good.send(asked)
        check_block(peer, await good.answer("block"), asked.propose.base, 2)


RULES: tuple[Rule[DrafterPeer], ...] = (
    Rule("info", "DrafterInfo describes model, protocols and offers without a session", _info),
    Rule("open", "open is answered with the same model, for every offer", _open),
    Rule("open_first", "the first message must be open", _first),
    Rule("open_once", "no later message may be open", _once),
    Rule("protocol", "an unknown protocol is INVALID_ARGUMENT", _protocol),
    Rule("open_fields", "a field of open out of range is INVALID_ARGUMENT", _fields),
    Rule("block", "a block is a path or tree of at most num_tokens tokens on its base", _blocks),
    Rule("order", "proposals are answered in order", _order),
    Rule("rollback", "keep_len may be any length that the stream named", _rollback),
    Rule("hash", "a prefix that does not hash to the base is FAILED_PRECONDITION", _hash),
    Rule("propose_fields", "a field of propose out of range is INVALID_ARGUMENT", _asked),
    Rule("ahead", "blocks_ahead are for outcomes that were asked, or there are none", _ahead),
    Rule("end_of_text", "nothing follows an end-of-text token", _ends),
    Rule("reopen", "one session id may have two streams", _again),
    Rule("freed", "the end of a stream, however it ends, frees the session", _freed),
    Rule("apart", "a session's error leaves the others alone", _apart),
)
