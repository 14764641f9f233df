"""types <-> protobuf: the one file that knows both. Pure functions, named after the record.

Every `x_from_pb` takes a message from the network and returns a record whose lengths and counts
are within `limits`; it raises InvalidRequest naming the field otherwise. The services, which know
the vocabulary, check the token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from foredraft import limits
from foredraft.decoding.tree import check_parents
from foredraft.errors import InvalidRequest
from foredraft.types import (
    NGRAM,
    Acceptance,
    Base,
    Candidates,
    DraftBlock,
    DraftOpen,
    DraftOpened,
    DraftParams,
    FirstTokens,
    Grammar,
    GrammarKind,
    LogitsParams,
    ModelInfo,
    Proposal,
    Propose,
    Round,
    SamplingParams,
    Timings,
    TokenLogprobs,
    Verdict,
    VerifyOpen,
)
from foredraft.v1 import common_pb2, drafter_pb2, verifier_pb2

Name = TypeVar("Name", bound=StrEnum)

PROTOCOL = common_pb2.PROTOCOL_VERSION_1


def check_protocol(version: int) -> None:
    """Raise InvalidRequest unless the peer speaks this revision of the contract."""
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
    )


def model_from_pb(m: common_pb2.ModelInfo) -> ModelInfo:
    limits.check_range("features_width", m.features_width, 0, limits.MAX_FEATURES_WIDTH)
    limits.check_range("eos_token_ids entries", len(m.eos_token_ids), 0, limits.MAX_EOS)
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
    )


def timings_to_pb(t: Timings) -> common_pb2.Timings:
    return common_pb2.Timings(queue_us=t.queue_us, compute_us=t.compute_us, batch_rows=t.batch_rows)


def timings_from_pb(m: common_pb2.Timings) -> Timings:
    return Timings(m.queue_us, m.compute_us, m.batch_rows)


def _named(field: str, kind: type[Name], name: str) -> Name:
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


def draft_params_to_pb(p: DraftParams) -> drafter_pb2.DraftParams:
    return drafter_pb2.DraftParams(
        steps=p.steps, extend=p.extend, first=p.first, first_tokens=p.first_tokens
    )


def draft_params_from_pb(m: drafter_pb2.DraftParams) -> DraftParams:
    limits.check_range("params.steps", m.steps, 0, limits.MAX_DENOISING_STEPS)
    limits.check_range("params.first_tokens", m.first_tokens, 0, limits.MAX_PREFIX)
    first = _named("params.first", FirstTokens, m.first or FirstTokens.DIFFUSION)
    return DraftParams(m.steps or 1, m.extend, first, m.first_tokens)


def draft_open_to_pb(o: DraftOpen) -> drafter_pb2.DraftOpen:
    return drafter_pb2.DraftOpen(
        protocol=PROTOCOL,
        session_id=o.session_id,
        prefix=o.prefix,
        sampling=sampling_to_pb(o.sampling),
        proposal=o.proposal,
        max_len=o.max_len,
        params=draft_params_to_pb(o.params),
    )


def draft_open_from_pb(m: drafter_pb2.DraftOpen, shortest: int = 1) -> DraftOpen:
    """shortest is how many tokens the prefix must have: none within a DraftSource."""
    check_protocol(m.protocol)
    limits.check_session_id(m.session_id)
    limits.check_range("max_len", m.max_len, 1, limits.MAX_PREFIX)
    limits.check_range("prefix length", len(m.prefix), shortest, m.max_len)
    return DraftOpen(
        m.session_id,
        tuple(m.prefix),
        sampling_from_pb(m.sampling),
        _named("proposal", Proposal, m.proposal),
        m.max_len,
        draft_params_from_pb(m.params),
    )


def draft_opened_to_pb(o: DraftOpened) -> drafter_pb2.DraftOpened:
    return drafter_pb2.DraftOpened(model=model_to_pb(o.model), max_block=o.max_block)


def draft_opened_from_pb(m: drafter_pb2.DraftOpened) -> DraftOpened:
    limits.check_range("max_block", m.max_block, 1, limits.MAX_DRAFT)
    return DraftOpened(model_from_pb(m.model), m.max_block)


def propose_to_pb(p: Propose) -> drafter_pb2.Propose:
    return drafter_pb2.Propose(
        base=base_to_pb(p.base),
        keep_len=p.keep_len,
        append=p.append,
        num_tokens=p.num_tokens,
        features=p.features,
    )


def propose_from_pb(m: drafter_pb2.Propose) -> Propose:
    base = base_from_pb(m.base)
    limits.check_range("num_tokens", m.num_tokens, 1, limits.MAX_DRAFT)
    if m.keep_len + len(m.append) != base.prefix_len:
        raise InvalidRequest("keep_len + append must make up base.prefix_len", param="append")
    return Propose(base, m.keep_len, tuple(m.append), m.num_tokens, m.features)


def draft_block_to_pb(b: DraftBlock) -> drafter_pb2.DraftBlock:
    return drafter_pb2.DraftBlock(
        base=base_to_pb(b.base),
        tokens=b.tokens,
        parents=b.parents,
        proposal=b.proposal,
        generated_len=b.generated_len,
        bonus_guess=b.bonus_guess if b.bonus_guess >= 0 else None,
        timings=timings_to_pb(b.timings),
        q=candidates_to_pb(b.q),
    )


def draft_block_from_pb(m: drafter_pb2.DraftBlock) -> DraftBlock:
    limits.check_range("tokens length", len(m.tokens), 0, limits.MAX_DRAFT)
    check_parents("parents", m.parents, len(m.tokens))
    return DraftBlock(
        base_from_pb(m.base),
        tuple(m.tokens),
        tuple(m.parents),
        NGRAM if m.proposal == NGRAM else _named("proposal", Proposal, m.proposal),
        m.generated_len,
        m.bonus_guess if m.HasField("bonus_guess") else -1,
        timings_from_pb(m.timings),
        candidates_from_pb(m.q, m.tokens),
    )


def verify_open_to_pb(o: VerifyOpen) -> verifier_pb2.VerifyOpen:
    return verifier_pb2.VerifyOpen(
        protocol=PROTOCOL,
        session_id=o.session_id,
        prefix=o.prefix,
        sampling=sampling_to_pb(o.sampling),
        max_new_tokens=o.max_new_tokens,
        max_draft=o.max_draft,
        stop_token_ids=o.stop_token_ids,
        acceptance=o.acceptance,
        logits=logits_to_pb(o.logits),
        logprobs=o.logprobs,
        grammar_kind=o.grammar.kind if o.grammar else "",
        grammar=o.grammar.text if o.grammar else "",
        prompt_logprobs=o.prompt_logprobs,
        cache_salt=o.cache_salt,
        features_hash=o.features_hash,
        features_from=o.features_from,
    )


def verify_open_from_pb(m: verifier_pb2.VerifyOpen) -> VerifyOpen:
    check_protocol(m.protocol)
    limits.check_session_id(m.session_id)
    limits.check_range("prefix length", len(m.prefix), 1, limits.MAX_PREFIX)
    limits.check_range("max_new_tokens", m.max_new_tokens, 1, limits.MAX_PREFIX)
    limits.check_range("max_draft", m.max_draft, 0, limits.MAX_DRAFT)
    limits.check_range("logprobs", m.logprobs, 0, limits.MAX_LOGPROBS)
    limits.check_range("grammar length", len(m.grammar), 0, limits.MAX_GRAMMAR)
    limits.check_range("cache_salt length", len(m.cache_salt), 0, limits.MAX_SALT)
    limits.check_range("features_from", m.features_from, 0, len(m.prefix))
    return VerifyOpen(
        m.session_id,
        tuple(m.prefix),
        sampling_from_pb(m.sampling),
        m.max_new_tokens,
        m.max_draft,
        tuple(m.stop_token_ids),
        _named("acceptance", Acceptance, m.acceptance or Acceptance.COUPLED),
        logits_from_pb(m.logits),
        m.logprobs if m.HasField("logprobs") else None,
        Grammar(_named("grammar_kind", GrammarKind, m.grammar_kind), m.grammar)
        if m.grammar_kind
        else None,
        m.prompt_logprobs,
        m.cache_salt,
        m.features_hash,
        m.features_from,
    )


def round_to_pb(r: Round) -> verifier_pb2.Round:
    return verifier_pb2.Round(
        base=base_to_pb(r.base),
        draft=r.draft,
        plain_steps=r.plain_steps,
        parents=r.parents,
        q=candidates_to_pb(r.q),
    )


def round_from_pb(m: verifier_pb2.Round) -> Round:
    limits.check_range("draft length", len(m.draft), 0, limits.MAX_DRAFT)
    if not m.draft:
        limits.check_range("plain_steps", m.plain_steps, 1, limits.MAX_PLAIN_STEPS)
    check_parents("parents", m.parents, len(m.draft))
    return Round(
        base_from_pb(m.base),
        tuple(m.draft),
        m.plain_steps,
        tuple(m.parents),
        candidates_from_pb(m.q, m.draft),
    )


def verdict_to_pb(v: Verdict) -> verifier_pb2.Verdict:
    return verifier_pb2.Verdict(
        base=base_to_pb(v.base),
        accepted=v.accepted,
        next_tokens=v.next_tokens,
        timings=timings_to_pb(v.timings),
        path=v.path,
        logprobs=[logprobs_to_pb(t) for t in v.logprobs],
        prompt_logprobs=[logprobs_to_pb(t) for t in v.prompt_logprobs],
        features=v.features,
        cached_tokens=v.cached_tokens,
    )


def verdict_from_pb(m: verifier_pb2.Verdict) -> Verdict:
    limits.check_range("accepted", m.accepted, 0, limits.MAX_DRAFT)
    limits.check_range("next_tokens length", len(m.next_tokens), 1, limits.MAX_PLAIN_STEPS)
    if len(m.path) not in (0, m.accepted):
        raise InvalidRequest("path must be empty or have `accepted` entries", param="path")
    if len(m.logprobs) not in (0, m.accepted + len(m.next_tokens)):
        raise InvalidRequest(
            "logprobs must be empty or have an entry for every token", param="logprobs"
        )
    limits.check_range("cached_tokens", m.cached_tokens, 0, limits.MAX_PREFIX)
    return Verdict(
        base_from_pb(m.base),
        m.accepted,
        tuple(m.next_tokens),
        timings_from_pb(m.timings),
        tuple(m.path),
        tuple(logprobs_from_pb(t) for t in m.logprobs),
        tuple(logprobs_from_pb(t) for t in m.prompt_logprobs),
        m.features,
        m.cached_tokens,
    )
