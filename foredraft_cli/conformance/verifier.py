"""The rules of VerifierService, as a verifier of anybody's must keep them.

Equalities of tokens are asked of verifiers whose measured numerics are exact; of others a near tie
may turn out differently.
"""

from __future__ import annotations

from typing import Any

import grpc

from foredraft.codec import common as codec
from foredraft.v1 import common_pb2, drafter_pb2, verifier_pb2
from foredraft_cli.conformance.suite import Broken, Rule, refused, require
from foredraft_cli.conformance.verifier_peer import (
    GREEDY,
    SAMPLED,
    TOKENS,
    VerifierPeer,
    continued,
    decided,
    opened,
    round_of,
)

_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_OPENS = 40


async def _info(peer: VerifierPeer) -> None:
    model = peer.info.model
    require(model.vocab_size > 0 and model.max_len > 0, "the model has no vocabulary or no length")
    known = model.numerics == "exact" or model.numerics.startswith("tolerance ")
    require(known, f"numerics are {model.numerics!r}, neither exact nor a tolerance")
    spoken = peer.info.oldest_protocol <= codec.PROTOCOL <= peer.info.newest_protocol
    require(spoken, "the protocol of this suite is not among those spoken")
    require("coupled" in peer.info.acceptances, "the rule coupled is not among the acceptances")


async def _open(peer: VerifierPeer) -> None:
    async with peer.stream() as stream:
        answer = await opened(peer, stream)
        require(answer.model == peer.info.model, "open answers with another model than Info")


async def _first(peer: VerifierPeer) -> None:
    async with peer.stream() as stream:
        await stream.send(round_of(peer.prefix, 0, plain_steps=1))
        await refused(stream, _INVALID, "a round before open")


async def _once(peer: VerifierPeer) -> None:
    async with peer.stream() as stream:
        await opened(peer, stream)
        await stream.send(peer.opening("s", peer.prefix))
        await refused(stream, _INVALID, "a second open")


async def _fields(peer: VerifierPeer) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "protocol 0": {"protocol": 0},
        "protocol 99": {"protocol": 99},
        "an empty session id": {"session_id": ""},
        "an empty prefix": {"prefix": ()},
        "a token outside the vocabulary": {"prefix": (peer.info.model.vocab_size,)},
        "no new tokens": {"max_new_tokens": 0},
        "a top_p of 2": {"sampling": common_pb2.SamplingParams(top_p=2)},
        "an unknown rule": {"acceptance": "dowsing"},
        "21 logprobs": {"logprobs": 21},
        "a text longer than the model": {"max_new_tokens": peer.info.model.max_len + 1},
    }
    for what, fields in wrong.items():
        async with peer.stream() as stream:
            fields = {"prefix": peer.prefix, "session_id": "s", **fields}
            await stream.send(peer.opening(**fields))
            await refused(stream, _INVALID, what)


async def _rounds(peer: VerifierPeer) -> None:
    text = peer.prefix
    wrong: dict[str, dict[str, Any]] = {
        "a round of neither a draft nor steps": {},
        "a draft longer than max_draft": {"draft": text[:1] * (TOKENS + 1)},
        "a draft token outside the vocabulary": {"draft": (peer.info.model.vocab_size,)},
        "a parent behind its child": {"draft": text[:2], "parents": (1, -1)},
        "parents of another length": {"draft": text[:2], "parents": (-1,)},
    }
    for what, fields in wrong.items():
        async with peer.stream() as stream:
            await opened(peer, stream)
            await stream.send(round_of(text, 0, **fields))
            await refused(stream, _INVALID, what)


async def _plain(peer: VerifierPeer) -> None:
    async with peer.stream() as stream:
        await opened(peer, stream)
        verdict = await decided(peer, stream, round_of(peer.prefix, 0, plain_steps=TOKENS))
        require(not verdict.accepted, "tokens of a plain round were accepted")


async def _drafts(peer: VerifierPeer) -> None:
    """Right and wrong drafts, at temperature 0 and above."""
    for sampling in (GREEDY, SAMPLED):
        plain = await peer.plain(sampling)
        for right in range(4):
            wrong = (plain[right] + 1) % peer.info.model.vocab_size
            draft = (*plain[:right], wrong, *plain[right + 1 : TOKENS - 1])
            async with peer.stream() as stream:
                await opened(peer, stream, sampling=sampling)
                verdict = await decided(peer, stream, round_of(peer.prefix, 0, draft=draft))
                found = (*draft[: verdict.accepted], *verdict.next_tokens)
                if peer.exact:
                    fault = f"a draft changed the text to {found}, plainly it is {plain}"
                    require(found == plain[: right + 1], fault)
                after = await continued(stream, peer.prefix + found, 2, 1)
                if peer.exact:
                    more = plain[len(found) : len(found) + 2]
                    require(after == more, "the text behind a draft is another one than plainly")


async def _tree(peer: VerifierPeer) -> None:
    plain, vocab = await peer.plain(), peer.info.model.vocab_size
    wrong = tuple((token + 1) % vocab for token in plain)
    # Two branches, the second one right.
    draft = (wrong[0], plain[0], wrong[1], plain[1], plain[2])
    parents = (-1, -1, 1, 1, 3)
    async with peer.stream() as stream:
        await opened(peer, stream)
        asked = round_of(peer.prefix, 0, draft=draft, parents=parents)
        verdict = await decided(peer, stream, asked)
        if peer.exact:
            kept = tuple(draft[node] for node in verdict.path)
            require(kept == plain[:3], f"of a tree {kept} is kept, right is {plain[:3]}")
            require(tuple(verdict.next_tokens) == plain[3:4], "the token behind a tree is wrong")


async def _repeat(peer: VerifierPeer) -> None:
    async with peer.stream() as stream:
        await opened(peer, stream, sampling=SAMPLED)
        asked = round_of(peer.prefix, 0, draft=peer.prefix[:3])
        first = await decided(peer, stream, asked)
        again = await decided(peer, stream, asked)
        same = (again.accepted, list(again.next_tokens), list(again.path))
        fault = "a repeated round got another verdict"
        require(same == (first.accepted, list(first.next_tokens), list(first.path)), fault)


async def _base(peer: VerifierPeer) -> None:
    text = peer.prefix
    async with peer.stream() as stream:
        await opened(peer, stream)
        await stream.send(round_of(text[:-1] + text[:1], 0, plain_steps=1))
        what = "a round on another prefix"
        await refused(stream, grpc.StatusCode.FAILED_PRECONDITION, what)


async def _seed(peer: VerifierPeer) -> None:
    first = await peer.plain(SAMPLED)
    if peer.exact:
        fault = "the same seed gave other tokens on another stream"
        require(await peer.plain(SAMPLED) == first, fault)


async def _moved(peer: VerifierPeer) -> None:
    plain = await peer.plain(SAMPLED)
    grown = peer.prefix + plain[:3]
    async with peer.stream() as stream:
        await stream.send(peer.opening("moved", grown, sampling=SAMPLED))
        await stream.answer("opened")
        left = len(plain) - 3
        await stream.send(round_of(grown, 3, "moved", plain_steps=left))
        found = tuple((await stream.answer("verdict")).next_tokens)
        if peer.exact:
            fault = f"behind {plain[:3]} a session that moved has {found}, not {plain[3:]}"
            require(found == plain[3 : 3 + len(found)], fault)


async def _stop(peer: VerifierPeer) -> None:
    plain = await peer.plain()
    async with peer.stream() as stream:
        await opened(peer, stream, stop_token_ids=[plain[2]])
        verdict = await decided(peer, stream, round_of(peer.prefix, 0, plain_steps=TOKENS))
        stops = [at for at, token in enumerate(verdict.next_tokens) if token == plain[2]]
        at_end = not stops or stops[0] == len(verdict.next_tokens) - 1
        require(at_end, "plain decoding went on behind a stop token")


async def _logprobs(peer: VerifierPeer) -> None:
    async with peer.stream() as stream:
        await opened(peer, stream, logprobs=2)
        verdict = await decided(peer, stream, round_of(peer.prefix, 0, plain_steps=3))
        fault = f"{len(verdict.logprobs)} logprobs for {len(verdict.next_tokens)} tokens"
        require(len(verdict.logprobs) == len(verdict.next_tokens), fault)
        each = all(one.logprob <= 1e-3 and len(one.top_token_ids) <= 2 for one in verdict.logprobs)
        require(each, "a logprob is above 0, or has more of the likeliest than asked")


async def _lease(peer: VerifierPeer) -> None:
    """A lease on a drafter that is not there ends, and the session goes on."""
    source = verifier_pb2.DraftSource(
        address="127.0.0.1:1",
        open=drafter_pb2.DraftOpen(
            protocol=codec.PROTOCOL,
            session_id="s",
            proposal="argmax",
            max_len=64,
            sampling=GREEDY,
        ),
    )
    grant = verifier_pb2.Grant(seq=1, rounds=4, num_draft_tokens=4, deadline_us=100_000)
    async with peer.stream() as stream:
        await opened(peer, stream)
        await stream.send(verifier_pb2.VerifyRequest(draft_source=source))
        await stream.send(verifier_pb2.VerifyRequest(grant=grant))
        ended = await stream.answer("lease_ended")
        known = ("late", "lost", "unsupported")
        require(ended.fault in known, f"the lease ended with the fault {ended.fault!r}")
        require(ended.seq == 1, f"lease_ended names grant {ended.seq}, the newest is 1")
        if not peer.info.leads_rounds:
            require(ended.fault == "unsupported", "it leads no rounds, and took a lease")
        await decided(peer, stream, round_of(peer.prefix, 0, plain_steps=1))


async def _freed(peer: VerifierPeer) -> None:
    room = peer.info.model.max_len - len(peer.prefix)
    for number in range(_OPENS):
        async with peer.stream() as stream:
            await opened(peer, stream, max_new_tokens=min(room, 1024))
            await decided(peer, stream, round_of(peer.prefix, 0, plain_steps=1))
            # Every other one is cancelled, by leaving.
            if number % 2:
                await stream.end()


async def _apart(peer: VerifierPeer) -> None:
    async with peer.stream() as good, peer.stream() as bad:
        await opened(peer, good)
        await opened(peer, bad)
        await bad.send(round_of(peer.prefix, 0))
        if await bad.refusal() is grpc.StatusCode.OK:
            raise Broken("a bad request ended in OK")
        await decided(peer, good, round_of(peer.prefix, 0, plain_steps=1))


RULES: tuple[Rule[VerifierPeer], ...] = (
    Rule("info", "VerifierInfo describes model, protocols and rules without a session", _info),
    Rule("open", "open is answered with the same model", _open),
    Rule("open_first", "the first message must be open", _first),
    Rule("open_once", "no later message may be open", _once),
    Rule("open_fields", "a field of open out of range is INVALID_ARGUMENT", _fields),
    Rule("round_fields", "a round that is no draft and no steps is INVALID_ARGUMENT", _rounds),
    Rule("plain", "plain rounds decode 1 to plain_steps tokens", _plain),
    Rule("drafts", "no draft changes the text, at any temperature", _drafts),
    Rule("tree", "of a tree one branch is kept, the target's own", _tree),
    Rule("repeat", "a repeated round gets the same verdict", _repeat),
    Rule("base", "a round on another prefix is FAILED_PRECONDITION", _base),
    Rule("seed", "the same seed gives the same tokens", _seed),
    Rule("moved", "a session that opens with its committed text goes on as before", _moved),
    Rule("stop", "plain decoding halts behind a stop token", _stop),
    Rule("logprobs", "logprobs come for every token, if asked", _logprobs),
    Rule("lease", "a lease that cannot be led ends, and the session goes on", _lease),
    Rule("freed", "the end of a stream, however it ends, frees the session", _freed),
    Rule("apart", "a session's error leaves the others alone", _apart),
)
