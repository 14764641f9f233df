"""Common records <-> protobuf: pure functions, named after the record.

Every `x_from_pb` of this package takes a message from the network and returns a record whose
lengths and counts are within `limits`; it raises InvalidRequest naming the field otherwise. The
services, which know the vocabulary, check the token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from foredraft import limits
from foredraft.errors import InvalidRequest
from foredraft.types import (
    NO_PRICE,
    Base,
    Candidates,
    LogitsParams,
    ModelInfo,
    Part,
    Price,
    SamplingParams,
    Stored,
    Timings,
    TokenLogprobs,
)
from foredraft.v1 import common_pb2

Name = TypeVar("Name", bound=StrEnum)

PROTOCOL = common_pb2.PROTOCOL_VERSION_1


def check_protocol(version: int) -> None:
    """Raise InvalidRequest unless the peer has this revision of the contract."""
    if version != PROTOCOL:
        raise InvalidRequest(
            f"protocol {version} is not supported; this is {PROTOCOL}", param="protocol"
        )


def base_to_pb(base: Base) -> common_pb2.Base:
    return common_pb2.Base(
        session_id=base.session_id,
        round=base.round,
        prefix_len=base.prefix_len,
        prefix_hash=base.prefix_hash,
    )


def base_from_pb(m: common_pb2.Base) -> Base:
    limits.check_session_id(m.session_id)
    limits.check_range("base.prefix_len", m.prefix_len, 0, limits.MAX_PREFIX)
    return Base(m.session_id, m.round, m.prefix_len, m.prefix_hash)


def sampling_to_pb(s: SamplingParams) -> common_pb2.SamplingParams:
    return common_pb2.SamplingParams(
        temperature=s.temperature, top_k=s.top_k, top_p=s.top_p, min_p=s.min_p, seed=s.seed
    )


def sampling_from_pb(m: common_pb2.SamplingParams) -> SamplingParams:
    return SamplingParams(m.temperature, m.top_k, m.top_p, m.min_p, m.seed)


def logits_to_pb(p: LogitsParams) -> common_pb2.LogitsParams:
    return common_pb2.LogitsParams(
        prompt_len=p.prompt_len,
        repetition_penalty=p.repetition_penalty,
        presence_penalty=p.presence_penalty,
        frequency_penalty=p.frequency_penalty,
        min_tokens=p.min_tokens,
        biased_token_ids=[token for token, _ in p.logit_bias],
        biases=[bias for _, bias in p.logit_bias],
        allowed_token_ids=p.allowed_token_ids,
    )


def logits_from_pb(m: common_pb2.LogitsParams) -> LogitsParams:
    limits.check_range("logit_bias entries", len(m.biased_token_ids), 0, limits.MAX_BIASES)
    if len(m.biases) != len(m.biased_token_ids):
        raise InvalidRequest("logits needs one bias for each of its tokens", param="logit_bias")
    return LogitsParams(
        m.prompt_len,
        m.repetition_penalty or 1.0,
        m.presence_penalty,
        m.frequency_penalty,
        m.min_tokens,
        tuple(zip(m.biased_token_ids, m.biases, strict=True)),
        tuple(m.allowed_token_ids),
    )


def logprobs_to_pb(t: TokenLogprobs) -> common_pb2.TokenLogprobs:
    return common_pb2.TokenLogprobs(
        logprob=t.logprob,
        rank=t.rank,
        top_token_ids=[token for token, _ in t.top],
        top_logprobs=[logprob for _, logprob in t.top],
    )


def logprobs_from_pb(m: common_pb2.TokenLogprobs) -> TokenLogprobs:
    limits.check_range("logprobs entries", len(m.top_token_ids), 0, limits.MAX_LOGPROBS)
    if len(m.top_logprobs) != len(m.top_token_ids):
        raise InvalidRequest("logprobs needs one value for each of its tokens", param="logprobs")
    top = tuple(zip(m.top_token_ids, m.top_logprobs, strict=True))
    return TokenLogprobs(m.logprob, m.rank, top)


def model_to_pb(info: ModelInfo) -> common_pb2.ModelInfo:
    return common_pb2.ModelInfo(
        vocab_size=info.vocab_size,
        max_len=info.max_len,
        tokenizer_hash=info.tokenizer_hash,
        numerics=info.numerics,
        name=info.name,
        weights_hash=info.weights_hash,
        features_hash=info.features_hash,
        features_width=info.features_width,
        eos_token_ids=info.eos_token_ids,
        mask_token_id=info.mask_token_id,
        any_subset=info.any_subset,
        block_length=info.block_length,
    )


def model_from_pb(m: common_pb2.ModelInfo) -> ModelInfo:
    limits.check_range("features_width", m.features_width, 0, limits.MAX_FEATURES_WIDTH)
    limits.check_range("eos_token_ids entries", len(m.eos_token_ids), 0, limits.MAX_EOS)
    limits.check_range("block_length", m.block_length, 0, limits.MAX_BLOCK_LENGTH)
    return ModelInfo(
        m.vocab_size,
        m.max_len,
        m.tokenizer_hash,
        m.numerics,
        m.name,
        m.weights_hash,
        m.features_hash,
        m.features_width,
        eos_token_ids=tuple(m.eos_token_ids),
        mask_token_id=m.mask_token_id if m.HasField("mask_token_id") else None,
        any_subset=m.any_subset,
        block_length=m.block_length,
    )


def timings_to_pb(t: Timings) -> common_pb2.Timings:
    return common_pb2.Timings(
        queue_us=t.queue_us,
        compute_us=t.compute_us,
        batch_rows=t.batch_rows,
        passes=t.passes,
        queue_prefill_us=t.queue_prefill_us,
        compute_prefill_us=t.compute_prefill_us,
    )


def timings_from_pb(m: common_pb2.Timings) -> Timings:
    return Timings(
        m.queue_us,
        m.compute_us,
        m.batch_rows,
        m.passes,
        m.queue_prefill_us,
        m.compute_prefill_us,
    )


def price_to_pb(p: Price) -> common_pb2.Price | None:
    if p == NO_PRICE:
        return None
    return common_pb2.Price(
        sessions=p.sessions,
        pass_s=p.pass_s,
        row_s=p.row_s,
        draft_s=p.draft_s,
        drafting=p.drafting,
    )


def price_from_pb(m: common_pb2.Price) -> Price:
    for name, value in (("pass_s", m.pass_s), ("row_s", m.row_s), ("draft_s", m.draft_s)):
        limits.check_range(f"price.{name}", value, 0, limits.MAX_PASS_S)
    return Price(m.sessions, m.pass_s, m.row_s, m.draft_s, m.drafting)


def part_to_pb(part: Part) -> common_pb2.FeatureChunk:
    if isinstance(part, Stored):
        return common_pb2.FeatureChunk(reference=part.reference, size=part.size)
    return common_pb2.FeatureChunk(data=part)


def part_from_pb(m: common_pb2.FeatureChunk) -> Part:
    if not m.reference:
        limits.check_range("features.data length", len(m.data), 1, limits.MAX_TENSOR_CHUNK)
        return m.data
    if m.data:
        raise InvalidRequest("features have data or a reference, not both", param="features")
    limits.check_range("features.reference length", len(m.reference), 1, limits.MAX_REFERENCE)
    limits.check_range("features.size", m.size, 1, limits.MAX_FEATURES)
    return Stored(m.reference, m.size)


def named(field: str, kind: type[Name], name: str) -> Name:
    """Return the member of an enumeration that a string names."""
    try:
        return kind(name)
    except ValueError:
        raise InvalidRequest(
            f"{field} must be one of {', '.join(kind)}, got {name!r}", param=field
        ) from None


def candidates_to_pb(q: Sequence[Candidates]) -> list[common_pb2.Candidates]:
    return [common_pb2.Candidates(tokens=c.tokens, weights=c.weights) for c in q]


def candidates_from_pb(
    ms: Sequence[common_pb2.Candidates], tokens: Sequence[int]
) -> tuple[Candidates, ...]:
    q = tuple(Candidates(tuple(m.tokens), tuple(m.weights)) for m in ms)
    limits.check_candidates("q", q, tokens)
    return q
