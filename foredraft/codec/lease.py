"""lease records <-> protobuf, bounds checked."""

from __future__ import annotations

from foredraft import limits
from foredraft.codec import drafter as drafter_codec
from foredraft.codec import verifier as verifier_codec
from foredraft.codec.ngram import ngram_from_pb, ngram_to_pb
from foredraft.errors import InvalidRequest
from foredraft.lease import DraftSource, Grant, LeaseEnded, LeaseFault, LedRound
from foredraft.v1 import verifier_pb2


def source_to_pb(s: DraftSource) -> verifier_pb2.DraftSource:
    return verifier_pb2.DraftSource(
        address=s.address, open=drafter_codec.draft_open_to_pb(s.open), ngram=ngram_to_pb(s.ngram)
    )


def source_from_pb(m: verifier_pb2.DraftSource) -> DraftSource:
    if not limits.is_address(m.address):
        raise InvalidRequest("draft_source.address must be host:port", param="draft_source.address")
    ngram = ngram_from_pb(m.ngram) if m.HasField("ngram") else None
    return DraftSource(m.address, drafter_codec.draft_open_from_pb(m.open, shortest=0), ngram)


def grant_to_pb(g: Grant) -> verifier_pb2.Grant:
    return verifier_pb2.Grant(
        seq=g.seq,
        rounds=g.rounds,
        num_draft_tokens=g.num_draft_tokens,
        deadline_us=g.deadline_us,
        round=g.round,
        run_ahead=g.run_ahead,
        plain_passes=g.plain_passes,
    )


def grant_from_pb(m: verifier_pb2.Grant) -> Grant:
    limits.check_range("grant.rounds", m.rounds, 0, limits.MAX_LED_ROUNDS)
    limits.check_range("grant.num_draft_tokens", m.num_draft_tokens, 1, limits.MAX_DRAFT)
    limits.check_range("grant.deadline_us", m.deadline_us, 1, limits.MAX_DEADLINE_US)
    limits.check_range("grant.plain_passes", m.plain_passes, 0, limits.MAX_PLAIN_STEPS)
    return Grant(
        m.seq,
        m.rounds,
        m.num_draft_tokens,
        m.deadline_us,
        m.round,
        m.run_ahead,
        m.plain_passes,
    )


def led_round_to_pb(r: LedRound) -> verifier_pb2.LedRound:
    return verifier_pb2.LedRound(
        block=drafter_codec.draft_block_to_pb(r.block),
        verdict=verifier_codec.verdict_to_pb(r.verdict),
        num_draft_tokens=r.num_draft_tokens,
        rounds_left=r.rounds_left,
        draft_us=r.draft_us,
        ran_ahead=r.ran_ahead,
        hit=r.hit,
    )


def led_round_from_pb(m: verifier_pb2.LedRound) -> LedRound:
    limits.check_range("led_round.num_draft_tokens", m.num_draft_tokens, 0, limits.MAX_DRAFT)
    limits.check_range("tokens length", len(m.block.tokens), 0, m.num_draft_tokens)
    return LedRound(
        drafter_codec.draft_block_from_pb(m.block),
        verifier_codec.verdict_from_pb(m.verdict),
        m.num_draft_tokens,
        m.rounds_left,
        m.draft_us,
        m.ran_ahead,
        m.hit,
    )


def lease_ended_to_pb(e: LeaseEnded) -> verifier_pb2.LeaseEnded:
    return verifier_pb2.LeaseEnded(seq=e.seq, fault=e.fault)


def lease_ended_from_pb(m: verifier_pb2.LeaseEnded) -> LeaseEnded:
    try:
        return LeaseEnded(m.seq, LeaseFault(m.fault))
    except ValueError:
        raise InvalidRequest(f"lease fault {m.fault!r} is unknown", param="fault") from None
