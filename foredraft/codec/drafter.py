"""The drafter's records <-> protobuf, bounds checked."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft import limits
from foredraft.codec.common import (
    PROTOCOL,
    base_from_pb,
    base_to_pb,
    candidates_from_pb,
    candidates_to_pb,
    check_protocol,
    model_from_pb,
    model_to_pb,
    named,
    sampling_from_pb,
    sampling_to_pb,
    timings_from_pb,
    timings_to_pb,
)
from foredraft.decoding.tree import ROOT, check_parents
from foredraft.errors import InvalidRequest
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from foredraft.types import NGRAM, Base, DraftParams, Guess, Proposal, WarmupProposal
from foredraft.v1 import drafter_pb2


def draft_params_to_pb(p: DraftParams) -> drafter_pb2.DraftParams:
    return drafter_pb2.DraftParams(
        steps=p.steps,
        extend=p.extend,
        warmup_proposal=p.warmup_proposal,
        warmup_tokens=p.warmup_tokens,
    )


def draft_params_from_pb(m: drafter_pb2.DraftParams) -> DraftParams:
    limits.check_range("params.steps", m.steps, 0, limits.MAX_DENOISING_STEPS)
    limits.check_range("params.warmup_tokens", m.warmup_tokens, 0, limits.MAX_PREFIX)
    name = m.warmup_proposal or WarmupProposal.DIFFUSION
    warmup = named("params.warmup_proposal", WarmupProposal, name)
    return DraftParams(m.steps or 1, m.extend, warmup, m.warmup_tokens)


def draft_open_to_pb(o: DraftOpen) -> drafter_pb2.DraftOpen:
    return drafter_pb2.DraftOpen(
        protocol=PROTOCOL,
        session_id=o.session_id,
        prefix=o.prefix,
        sampling=sampling_to_pb(o.sampling),
        proposal=o.proposal,
        max_len=o.max_len,
        params=draft_params_to_pb(o.params),
        num_guesses=o.num_guesses,
        prompt_len=o.prompt_len,
        marginals=o.marginals,
    )


def draft_open_from_pb(m: drafter_pb2.DraftOpen, shortest: int = 1) -> DraftOpen:
    """shortest is how many tokens the prefix must have: none within a DraftSource."""
    check_protocol(m.protocol)
    limits.check_session_id(m.session_id)
    limits.check_range("max_len", m.max_len, 1, limits.MAX_PREFIX)
    limits.check_range("prefix length", len(m.prefix), shortest, m.max_len)
    limits.check_range("num_guesses", m.num_guesses, 0, limits.MAX_OUTCOMES)
    limits.check_range("prompt_len", m.prompt_len, 0, len(m.prefix) if shortest else m.max_len)
    return DraftOpen(
        m.session_id,
        tuple(m.prefix),
        sampling_from_pb(m.sampling),
        named("proposal", Proposal, m.proposal),
        m.max_len,
        draft_params_from_pb(m.params),
        m.num_guesses,
        m.prompt_len,
        m.marginals,
    )


def draft_opened_to_pb(o: DraftOpened) -> drafter_pb2.DraftOpened:
    return drafter_pb2.DraftOpened(
        model=model_to_pb(o.model),
        max_draft_tokens=o.max_draft_tokens,
        tensor_store=o.tensor_store,
    )


def draft_opened_from_pb(m: drafter_pb2.DraftOpened) -> DraftOpened:
    limits.check_range("max_draft_tokens", m.max_draft_tokens, 1, limits.MAX_DRAFT)
    limits.check_store(m.tensor_store)
    return DraftOpened(model_from_pb(m.model), m.max_draft_tokens, m.tensor_store)


def propose_to_pb(p: Propose) -> drafter_pb2.Propose:
    return drafter_pb2.Propose(
        base=base_to_pb(p.base),
        keep_len=p.keep_len,
        append=p.append,
        num_tokens=p.num_tokens,
        features=p.features,
    )


def propose_from_pb(m: drafter_pb2.Propose) -> Propose:
    base = _base_of(m)
    return Propose(base, m.keep_len, tuple(m.append), m.num_tokens, m.features)


def _base_of(m: drafter_pb2.Propose | drafter_pb2.ProposeAhead) -> Base:
    base = base_from_pb(m.base)
    limits.check_range("num_tokens", m.num_tokens, 1, limits.MAX_DRAFT)
    if m.keep_len + len(m.append) != base.prefix_len:
        raise InvalidRequest("keep_len + append must make up base.prefix_len", param="append")
    return base


def propose_ahead_to_pb(p: ProposeAhead) -> drafter_pb2.ProposeAhead:
    return drafter_pb2.ProposeAhead(
        base=base_to_pb(p.base),
        keep_len=p.keep_len,
        append=p.append,
        num_tokens=p.num_tokens,
        outcomes=[drafter_pb2.Outcome(tokens=tokens) for tokens in p.outcomes],
    )


def propose_ahead_from_pb(m: drafter_pb2.ProposeAhead) -> ProposeAhead:
    base = _base_of(m)
    limits.check_range("outcomes length", len(m.outcomes), 1, limits.MAX_OUTCOMES)
    for outcome in m.outcomes:
        limits.check_range("outcomes tokens length", len(outcome.tokens), 1, limits.MAX_DRAFT + 1)
    outcomes = tuple(tuple(outcome.tokens) for outcome in m.outcomes)
    return ProposeAhead(base, m.keep_len, tuple(m.append), m.num_tokens, outcomes)


def draft_block_to_pb(b: DraftBlock) -> drafter_pb2.DraftBlock:
    return drafter_pb2.DraftBlock(
        base=base_to_pb(b.base),
        tokens=b.tokens,
        parents=b.parents,
        proposal=b.proposal,
        generated_len=b.generated_len,
        guesses=[drafter_pb2.Guess(node=n, token=t, probability=p) for n, t, p in b.guesses],
        timings=timings_to_pb(b.timings),
        q=candidates_to_pb(b.q),
        expected=b.expected,
    )


def draft_block_from_pb(m: drafter_pb2.DraftBlock) -> DraftBlock:
    limits.check_range("tokens length", len(m.tokens), 0, limits.MAX_DRAFT)
    check_parents("parents", m.parents, len(m.tokens))
    return DraftBlock(
        base_from_pb(m.base),
        tuple(m.tokens),
        tuple(m.parents),
        NGRAM if m.proposal == NGRAM else named("proposal", Proposal, m.proposal),
        m.generated_len,
        _guesses_from_pb(m.guesses, len(m.tokens)),
        timings_from_pb(m.timings),
        candidates_from_pb(m.q, m.tokens),
        limits.checked_expected("expected", m.expected, len(m.tokens)),
    )


def draft_blocks_to_pb(blocks: Sequence[DraftBlock]) -> drafter_pb2.DraftBlocks:
    return drafter_pb2.DraftBlocks(blocks=map(draft_block_to_pb, blocks))


def draft_blocks_from_pb(m: drafter_pb2.DraftBlocks) -> tuple[DraftBlock, ...]:
    limits.check_range("blocks length", len(m.blocks), 0, limits.MAX_OUTCOMES)
    return tuple(map(draft_block_from_pb, m.blocks))


def _guesses_from_pb(guesses: Sequence[drafter_pb2.Guess], count: int) -> tuple[Guess, ...]:
    """count is the number of the block's tokens."""
    limits.check_range("guesses length", len(guesses), 0, limits.MAX_OUTCOMES)
    for guess in guesses:
        limits.check_range("guesses.node", guess.node, ROOT, count - 1)
        limits.check_range("guesses.probability", guess.probability, 0, 1)
    return tuple(Guess(guess.node, guess.token, guess.probability) for guess in guesses)
