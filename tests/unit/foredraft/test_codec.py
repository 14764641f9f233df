"""Records survive the wire."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.codec import common as common_codec
from foredraft.codec import drafter as drafter_codec
from foredraft.codec import lease as lease_codec
from foredraft.codec import verifier as verifier_codec
from foredraft.lease import DraftSource, Grant, LeaseEnded, LeaseFault, LedRound
from foredraft.limits import (
    MAX_DEADLINE_US,
    MAX_DRAFT,
    MAX_FEATURES,
    MAX_FEATURES_WIDTH,
    MAX_LED_ROUNDS,
    MAX_OUTCOMES,
    MAX_PLAIN_STEPS,
    MAX_PREFIX,
    MAX_REFERENCE,
)
from foredraft.messages import (
    DraftBlock,
    DraftOpen,
    DraftOpened,
    Propose,
    ProposeAhead,
    Round,
    Verdict,
    VerifyOpen,
)
from foredraft.ngram.params import NgramParams
from foredraft.types import (
    Acceptance,
    Base,
    Candidates,
    DraftParams,
    Grammar,
    GrammarKind,
    Guess,
    LogitsParams,
    ModelInfo,
    Price,
    Proposal,
    SamplingParams,
    Stored,
    Timings,
    TokenLogprobs,
    WarmupProposal,
)

u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
words = st.text("abcXYZ019-_ ", min_size=1, max_size=20)
tokens = st.lists(u32, max_size=20).map(tuple)
some_tokens = st.lists(u32, min_size=1, max_size=20).map(tuple)
bases = st.builds(Base, words, u32, st.integers(0, MAX_PREFIX), u64)
timings = st.builds(Timings, u32, u32, u32)
samplings = st.builds(
    SamplingParams, *(st.floats(allow_nan=False), u32, *(st.floats(allow_nan=False),) * 2, u64)
)
pairs = st.lists(st.tuples(u32, st.floats(-9, 9, width=32)), max_size=5).map(tuple)
logits = st.builds(
    LogitsParams,
    u32,
    st.floats(0.01, 10),
    *(st.floats(-2, 2),) * 2,
    u32,
    pairs,
    tokens,
)
logprobs = st.builds(TokenLogprobs, st.floats(-99, 0, width=32), u32, pairs)
models = st.builds(
    ModelInfo,
    u32,
    u32,
    *(st.text(max_size=20),) * 2,
    words,
    *(st.text(max_size=20),) * 2,
    st.integers(0, MAX_FEATURES_WIDTH),
    eos_token_ids=tokens,
    mask_token_id=st.none() | u32,
)
features = st.binary(max_size=40)
stores = st.just("") | words
seconds = st.floats(0, 3600)
prices = st.builds(Price, u32, seconds, seconds, seconds, u32)
proposals = st.sampled_from(Proposal)


def trees_over(draw: st.DrawFn, drafted: tuple[int, ...]) -> tuple[int, ...]:
    parents = tuple(draw(st.integers(-1, i - 1)) for i in range(len(drafted)))
    return draw(st.sampled_from(((), parents)))


def q_over(draw: st.DrawFn, drafted: tuple[int, ...]) -> tuple[Candidates, ...]:
    def one(token: int) -> Candidates:
        others = draw(st.sets(u32, max_size=5)) - {token}
        weights = tuple(draw(st.integers(0, 1 << 20)) for _ in others)
        return Candidates((token, *others), (draw(st.integers(1, 1 << 30)), *weights))

    return draw(st.sampled_from(((), tuple(one(token) for token in drafted))))


def expected_of(draw: st.DrawFn, drafted: tuple[int, ...]) -> tuple[float, ...]:
    each = tuple(draw(st.floats(0, 1, width=32)) for _ in drafted)
    return draw(st.sampled_from(((), each)))


def guesses_about(draw: st.DrawFn, drafted: tuple[int, ...]) -> tuple[Guess, ...]:
    chance = st.floats(0, 1, width=32)
    guess = st.builds(Guess, st.integers(-1, len(drafted) - 1), u32, chance)
    return tuple(draw(st.lists(guess, max_size=MAX_OUTCOMES)))


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    drafted = draw(tokens)
    steps = draw(st.integers(1, MAX_PLAIN_STEPS))
    shape, q = trees_over(draw, drafted), q_over(draw, drafted)
    estimates = expected_of(draw, drafted)
    return Round(draw(bases), drafted, steps, shape, q, estimates, draw(st.booleans()))


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    path = draw(tokens)
    accepted = len(path) or draw(st.integers(0, MAX_DRAFT))
    more = draw(some_tokens)
    told = st.lists(logprobs, min_size=accepted + len(more), max_size=accepted + len(more))
    each = draw(st.one_of(st.just(()), told.map(tuple) if accepted < 10 else st.just(())))
    of_prompt = draw(st.lists(logprobs, max_size=3).map(tuple))
    return Verdict(
        draw(bases),
        accepted,
        more,
        draw(timings),
        path,
        each,
        of_prompt,
        draw(features),
        left_out=draw(st.integers(0, MAX_DRAFT)),
        price=draw(prices),
        plain_tokens=draw(st.integers(0, accepted + len(more) + 1)),
    )


@st.composite
def blocks(draw: st.DrawFn) -> DraftBlock:
    drafted = draw(tokens)
    return DraftBlock(
        draw(bases),
        drafted,
        trees_over(draw, drafted),
        draw(proposals),
        draw(u32),
        guesses_about(draw, drafted),
        draw(timings),
        q_over(draw, drafted),
        expected_of(draw, drafted),
    )


@st.composite
def proposes(draw: st.DrawFn) -> Propose:
    append, keep = draw(tokens), draw(st.integers(0, 1000))
    base = Base(draw(words), draw(u32), keep + len(append), draw(u64))
    return Propose(base, keep, append, draw(st.integers(1, MAX_DRAFT)), draw(features))


@st.composite
def proposes_ahead(draw: st.DrawFn) -> ProposeAhead:
    append, keep = draw(tokens), draw(st.integers(0, 1000))
    base = Base(draw(words), draw(u32), keep + len(append), draw(u64))
    outcomes = draw(st.lists(some_tokens, min_size=1, max_size=MAX_OUTCOMES).map(tuple))
    return ProposeAhead(base, keep, append, draw(st.integers(1, MAX_DRAFT)), outcomes)


@st.composite
def draft_opens(draw: st.DrawFn) -> DraftOpen:
    prefix = draw(some_tokens)
    longest = draw(st.integers(len(prefix), MAX_PREFIX))
    params = DraftParams(
        draw(st.integers(1, 64)),
        draw(st.booleans()),
        draw(st.sampled_from(WarmupProposal)),
        draw(st.integers(0, MAX_PREFIX)),
    )
    guesses = draw(st.integers(0, MAX_OUTCOMES))
    prompt_len = draw(st.integers(0, len(prefix)))
    known = (draw(words), prefix, draw(samplings), draw(proposals), longest, params, guesses)
    return DraftOpen(*known, prompt_len, draw(st.booleans()))


records: list[tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    (bases, common_codec.base_to_pb, common_codec.base_from_pb),
    (samplings, common_codec.sampling_to_pb, common_codec.sampling_from_pb),
    (models, common_codec.model_to_pb, common_codec.model_from_pb),
    (timings, common_codec.timings_to_pb, common_codec.timings_from_pb),
    (draft_opens(), drafter_codec.draft_open_to_pb, drafter_codec.draft_open_from_pb),
    (
        st.builds(DraftOpened, models, st.integers(1, MAX_DRAFT), stores),
        drafter_codec.draft_opened_to_pb,
        drafter_codec.draft_opened_from_pb,
    ),
    (proposes(), drafter_codec.propose_to_pb, drafter_codec.propose_from_pb),
    (proposes_ahead(), drafter_codec.propose_ahead_to_pb, drafter_codec.propose_ahead_from_pb),
    (blocks(), drafter_codec.draft_block_to_pb, drafter_codec.draft_block_from_pb),
    (
        st.lists(blocks(), max_size=3).map(tuple),
        drafter_codec.draft_blocks_to_pb,
        drafter_codec.draft_blocks_from_pb,
    ),
    (
        st.builds(
            VerifyOpen,
            words,
            some_tokens,
            samplings,
            st.integers(1, MAX_PREFIX),
            st.integers(0, MAX_DRAFT),
            tokens,
            st.sampled_from(Acceptance),
            logits,
            st.one_of(st.none(), st.integers(0, 20)),
            st.one_of(
                st.none(), st.builds(Grammar, st.sampled_from(GrammarKind), st.text(max_size=20))
            ),
            st.booleans(),
            *(st.text(max_size=20),) * 2,
            st.integers(0, 1),
            stores,
            self_draft=st.integers(0, MAX_DRAFT),
            ngram=st.none() | st.builds(NgramParams, st.floats(0, 9), st.integers(1, 9)),
        ),
        verifier_codec.verify_open_to_pb,
        verifier_codec.verify_open_from_pb,
    ),
    (
        st.builds(
            DraftSource,
            st.just("host-1:8080"),
            draft_opens(),
            st.none() | st.builds(NgramParams, st.floats(0, 9), st.integers(1, 9)),
        ),
        lease_codec.source_to_pb,
        lease_codec.source_from_pb,
    ),
    (
        st.builds(
            Grant,
            u32,
            st.integers(0, MAX_LED_ROUNDS),
            st.integers(1, MAX_DRAFT),
            st.integers(1, MAX_DEADLINE_US),
            u32,
        ),
        lease_codec.grant_to_pb,
        lease_codec.grant_from_pb,
    ),
    (
        st.builds(LedRound, blocks(), verdicts(), st.just(MAX_DRAFT), u32, u32),
        lease_codec.led_round_to_pb,
        lease_codec.led_round_from_pb,
    ),
    (
        st.builds(LeaseEnded, u32, st.sampled_from(LeaseFault)),
        lease_codec.lease_ended_to_pb,
        lease_codec.lease_ended_from_pb,
    ),
    (
        st.binary(min_size=1, max_size=40)
        | st.builds(
            Stored, st.binary(min_size=1, max_size=MAX_REFERENCE), st.integers(1, MAX_FEATURES)
        ),
        common_codec.part_to_pb,
        common_codec.part_from_pb,
    ),
    (rounds(), verifier_codec.round_to_pb, verifier_codec.round_from_pb),
    (verdicts(), verifier_codec.verdict_to_pb, verifier_codec.verdict_from_pb),
]


@given(st.data())
@pytest.mark.parametrize(
    "kind", range(len(records)), ids=[r[1].__name__.removesuffix("_to_pb") for r in records]
)
def test_a_record_survives_the_wire(kind: int, data: st.DataObject) -> None:
    strategy, encode, decode = records[kind]
    record = data.draw(strategy)
    message = encode(record)
    assert decode(type(message).FromString(message.SerializeToString())) == record


def test_a_seed_travels_as_all_of_its_64_bits() -> None:
    message = common_codec.sampling_to_pb(SamplingParams(seed=(1 << 64) - 1))
    assert struct.pack("<Q", (1 << 64) - 1) in message.SerializeToString()
