"""The verifier's records <-> protobuf, bounds checked."""

from __future__ import annotations

from foredraft import limits
from foredraft.codec.common import (
    PROTOCOL,
    base_from_pb,
    base_to_pb,
    candidates_from_pb,
    candidates_to_pb,
    check_protocol,
    logits_from_pb,
    logits_to_pb,
    logprobs_from_pb,
    logprobs_to_pb,
    named,
    price_from_pb,
    price_to_pb,
    sampling_from_pb,
    sampling_to_pb,
    timings_from_pb,
    timings_to_pb,
)
from foredraft.codec.ngram import ngram_from_pb, ngram_to_pb
from foredraft.decoding.tree import check_parents
from foredraft.errors import InvalidRequest
from foredraft.layout import Layout
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.types import Acceptance, Grammar, GrammarKind
from foredraft.v1 import verifier_pb2


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
        tensor_store=o.tensor_store,
        groups=o.groups,
        drafted=o.drafted,
        layout=None if o.layout is None else _layout_to_pb(o.layout),
        self_draft=o.self_draft,
        ngram=ngram_to_pb(o.ngram),
    )


def verify_open_from_pb(m: verifier_pb2.VerifyOpen) -> VerifyOpen:
    check_protocol(m.protocol)
    limits.check_session_id(m.session_id)
    limits.check_range("prefix length", len(m.prefix), 1, limits.MAX_PREFIX)
    limits.check_range("max_new_tokens", m.max_new_tokens, 1, limits.MAX_PREFIX)
    limits.check_range("max_draft", m.max_draft, 0, limits.MAX_DRAFT)
    limits.check_range("self_draft", m.self_draft, 0, limits.MAX_DRAFT)
    limits.check_range("logprobs", m.logprobs, 0, limits.MAX_LOGPROBS)
    limits.check_range("grammar length", len(m.grammar), 0, limits.MAX_GRAMMAR)
    limits.check_range("cache_salt length", len(m.cache_salt), 0, limits.MAX_SALT)
    limits.check_range("features_from", m.features_from, 0, len(m.prefix))
    limits.check_store(m.tensor_store)
    limits.check_groups(m.groups)
    return VerifyOpen(
        m.session_id,
        tuple(m.prefix),
        sampling_from_pb(m.sampling),
        m.max_new_tokens,
        m.max_draft,
        tuple(m.stop_token_ids),
        named("acceptance", Acceptance, m.acceptance or Acceptance.COUPLED),
        logits_from_pb(m.logits),
        m.logprobs if m.HasField("logprobs") else None,
        Grammar(named("grammar_kind", GrammarKind, m.grammar_kind), m.grammar)
        if m.grammar_kind
        else None,
        m.prompt_logprobs,
        m.cache_salt,
        m.features_hash,
        m.features_from,
        m.tensor_store,
        tuple(m.groups),
        m.drafted,
        _layout_from_pb(m.layout) if m.HasField("layout") else None,
        m.self_draft,
        ngram_from_pb(m.ngram) if m.HasField("ngram") else None,
    )


def _layout_to_pb(layout: Layout) -> verifier_pb2.Layout:
    return verifier_pb2.Layout(length=layout.length, given=layout.given)


def _layout_from_pb(m: verifier_pb2.Layout) -> Layout:
    limits.check_range("layout.length", m.length, 2, limits.MAX_PREFIX)
    limits.check_range("layout.given entries", len(m.given), 1, m.length - 1)
    return Layout(m.length, tuple(m.given))


def round_to_pb(r: Round) -> verifier_pb2.Round:
    return verifier_pb2.Round(
        base=base_to_pb(r.base),
        draft=r.draft,
        plain_steps=r.plain_steps,
        parents=r.parents,
        q=candidates_to_pb(r.q),
        expected=r.expected,
        no_features=r.no_features,
        plain_passes=r.plain_passes,
    )


def round_from_pb(m: verifier_pb2.Round) -> Round:
    limits.check_range("draft length", len(m.draft), 0, limits.MAX_DRAFT)
    if not m.draft:
        limits.check_range("plain_steps", m.plain_steps, 1, limits.MAX_PLAIN_STEPS)
        limits.check_range("plain_passes", m.plain_passes, 0, limits.MAX_PLAIN_STEPS)
    check_parents("parents", m.parents, len(m.draft))
    return Round(
        base_from_pb(m.base),
        tuple(m.draft),
        m.plain_steps,
        tuple(m.parents),
        candidates_from_pb(m.q, m.draft),
        limits.checked_expected("expected", m.expected, len(m.draft)),
        m.no_features,
        m.plain_passes,
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
        left_out=v.left_out,
        price=price_to_pb(v.price),
        plain_tokens=v.plain_tokens,
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
    limits.check_range("left_out", m.left_out, 0, limits.MAX_DRAFT)
    committed = m.accepted + len(m.next_tokens)
    limits.check_range("plain_tokens", m.plain_tokens, 0, committed + 1)
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
        m.left_out,
        price_from_pb(m.price),
        m.plain_tokens,
    )
