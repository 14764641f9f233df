"""The denoiser's records <-> protobuf, bounds checked."""

from __future__ import annotations

from foredraft import limits
from foredraft.codec.common import (
    PROTOCOL,
    base_from_pb,
    base_to_pb,
    check_protocol,
    sampling_from_pb,
    sampling_to_pb,
    timings_from_pb,
    timings_to_pb,
)
from foredraft.decoding.block_state import MASKED
from foredraft.denoising import Advance, Advanced, DenoiseOpen, Dynamic, Static, Unmasking
from foredraft.errors import InvalidRequest
from foredraft.v1 import denoiser_pb2


def denoise_open_to_pb(o: DenoiseOpen) -> denoiser_pb2.DenoiseOpen:
    m = denoiser_pb2.DenoiseOpen(
        protocol=PROTOCOL,
        session_id=o.session_id,
        prefix=o.prefix,
        sampling=sampling_to_pb(o.sampling),
        max_new_tokens=o.max_new_tokens,
        max_drafts=o.max_drafts,
        stop_token_ids=o.stop_token_ids,
        cache_salt=o.cache_salt,
        groups=o.groups,
    )
    if isinstance(o.unmasking, Static):
        m.per_step = o.unmasking.per_step
    else:
        m.threshold = o.unmasking.threshold
    return m


def denoise_open_from_pb(m: denoiser_pb2.DenoiseOpen) -> DenoiseOpen:
    check_protocol(m.protocol)
    limits.check_session_id(m.session_id)
    limits.check_range("prefix length", len(m.prefix), 1, limits.MAX_PREFIX)
    limits.check_range("max_new_tokens", m.max_new_tokens, 1, limits.MAX_PREFIX)
    limits.check_range("max_drafts", m.max_drafts, 0, limits.MAX_STATES)
    limits.check_range("cache_salt length", len(m.cache_salt), 0, limits.MAX_SALT)
    limits.check_groups(m.groups)
    return DenoiseOpen(
        m.session_id,
        tuple(m.prefix),
        sampling_from_pb(m.sampling),
        m.max_new_tokens,
        _unmasking_from_pb(m),
        m.max_drafts,
        tuple(m.stop_token_ids),
        m.cache_salt,
        tuple(m.groups),
    )


def _unmasking_from_pb(m: denoiser_pb2.DenoiseOpen) -> Unmasking:
    kind = m.WhichOneof("unmasking")
    if kind == "per_step":
        limits.check_range("per_step", m.per_step, 1, limits.MAX_BLOCK_LENGTH)
        return Static(m.per_step)
    if kind == "threshold":
        limits.check_range("threshold", m.threshold, 0, 1)
        if m.threshold == 1:
            raise InvalidRequest("threshold must be below 1", param="threshold")
        return Dynamic(m.threshold)
    raise InvalidRequest("unmasking must be per_step or threshold", param="unmasking")


def advance_to_pb(a: Advance) -> denoiser_pb2.Advance:
    return denoiser_pb2.Advance(base=base_to_pb(a.base), calls=a.calls)


def advance_from_pb(m: denoiser_pb2.Advance) -> Advance:
    limits.check_range("calls", m.calls, 1, limits.MAX_CALLS)
    return Advance(base_from_pb(m.base), m.calls)


def advanced_to_pb(a: Advanced) -> denoiser_pb2.Advanced:
    return denoiser_pb2.Advanced(
        base=base_to_pb(a.base),
        committed=a.committed,
        block=a.block,
        steps=a.steps,
        accepted=a.accepted,
        calls=a.calls,
        timings=timings_to_pb(a.timings),
    )


def advanced_from_pb(m: denoiser_pb2.Advanced) -> Advanced:
    limits.check_range("committed length", len(m.committed), 0, limits.MAX_PREFIX)
    limits.check_range("block length", len(m.block), 0, limits.MAX_BLOCK_LENGTH)
    if min(m.block, default=0) < MASKED:
        raise InvalidRequest("block has a token below -1", param="block")
    limits.check_range("calls", m.calls, 1, limits.MAX_CALLS)
    limits.check_range("accepted", m.accepted, 0, limits.MAX_PREFIX)
    limits.check_range("steps", m.steps, m.calls + m.accepted, m.calls + m.accepted)
    return Advanced(
        base_from_pb(m.base),
        tuple(m.committed),
        tuple(m.block),
        m.steps,
        m.accepted,
        m.calls,
        timings_from_pb(m.timings),
    )
