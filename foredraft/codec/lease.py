"""direct records <-> protobuf, as codec.py does it for all others."""

from __future__ import annotations

from foredraft import limits
from foredraft.codec import records as codec
from foredraft.errors import InvalidRequest
from foredraft.lease import Direct, DirectEnded, DirectFault, DirectRound, DraftSource
from foredraft.ngram.tree import TextTreeParams
from foredraft.v1 import verifier_pb2

MAX_PSEUDOCOUNTS = 8


def source_to_pb(s: DraftSource) -> verifier_pb2.DraftSource:
    return verifier_pb2.DraftSource(
        address=s.address, open=codec.draft_open_to_pb(s.open), text=_text_to_pb(s.text)
    )


def source_from_pb(m: verifier_pb2.DraftSource) -> DraftSource:
    if not limits.is_address(m.address):
        raise InvalidRequest("drafter.address must be host:port", param="drafter.address")
    text = _text_from_pb(m.text) if m.HasField("text") else None
    return DraftSource(m.address, codec.draft_open_from_pb(m.open, shortest=0), text)


def _text_to_pb(p: TextTreeParams | None) -> verifier_pb2.TextTreeParams | None:
    if p is None:
        return None
    return verifier_pb2.TextTreeParams(
        least=p.least,
        depth=p.depth,
        window=p.window,
        pseudocounts=p.pseudocounts,
        least_mass=p.least_mass,
    )


def _text_from_pb(m: verifier_pb2.TextTreeParams) -> TextTreeParams:
    limits.check_range("text.least", m.least, 0, limits.MAX_DRAFT)
    limits.check_range("text.depth", m.depth, 1, limits.MAX_DRAFT)
    limits.check_range("text.window", m.window, 1, limits.MAX_PREFIX)
    limits.check_range("text.pseudocounts length", len(m.pseudocounts), 1, MAX_PSEUDOCOUNTS)
    for pseudocount in m.pseudocounts:
        limits.check_range("text.pseudocounts", pseudocount, 1e-6, 1e6)
    limits.check_range("text.least_mass", m.least_mass, 1e-6, 1)
    return TextTreeParams(m.least, m.depth, m.window, tuple(m.pseudocounts), m.least_mass)


def direct_to_pb(d: Direct) -> verifier_pb2.Direct:
    return verifier_pb2.Direct(
        order=d.order,
        rounds=d.rounds,
        num_tokens=d.num_tokens,
        deadline_us=d.deadline_us,
        round=d.round,
        ahead=d.ahead,
    )


def direct_from_pb(m: verifier_pb2.Direct) -> Direct:
    limits.check_range("direct.rounds", m.rounds, 0, limits.MAX_DIRECT_ROUNDS)
    limits.check_range("direct.num_tokens", m.num_tokens, 1, limits.MAX_DRAFT)
    limits.check_range("direct.deadline_us", m.deadline_us, 1, limits.MAX_DEADLINE_US)
    return Direct(m.order, m.rounds, m.num_tokens, m.deadline_us, m.round, m.ahead)


def direct_round_to_pb(r: DirectRound) -> verifier_pb2.DirectRound:
    return verifier_pb2.DirectRound(
        block=codec.draft_block_to_pb(r.block),
        verdict=codec.verdict_to_pb(r.verdict),
        num_tokens=r.num_tokens,
        left=r.left,
        draft_us=r.draft_us,
        ran_ahead=r.ran_ahead,
        hit=r.hit,
    )


def direct_round_from_pb(m: verifier_pb2.DirectRound) -> DirectRound:
    limits.check_range("direct.num_tokens", m.num_tokens, 0, limits.MAX_DRAFT)
    limits.check_range("tokens length", len(m.block.tokens), 0, m.num_tokens)
    return DirectRound(
        codec.draft_block_from_pb(m.block),
        codec.verdict_from_pb(m.verdict),
        m.num_tokens,
        m.left,
        m.draft_us,
        m.ran_ahead,
        m.hit,
    )


def direct_ended_to_pb(e: DirectEnded) -> verifier_pb2.DirectEnded:
    return verifier_pb2.DirectEnded(order=e.order, fault=e.fault)


def direct_ended_from_pb(m: verifier_pb2.DirectEnded) -> DirectEnded:
    try:
        return DirectEnded(m.order, DirectFault(m.fault))
    except ValueError:
        raise InvalidRequest(f"direct fault {m.fault!r} is unknown", param="fault") from None
