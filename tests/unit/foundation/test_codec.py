"""Records survive the wire; messages that break the contract are refused by the field's name."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.codec import lease as lease_codec
from foredraft.codec import records as codec
from foredraft.errors import InvalidRequest
from foredraft.lease import DraftSource, Grant, LeaseEnded, LeaseFault, LedRound
from foredraft.limits import (
    MAX_DEADLINE_US,
    MAX_DRAFT,
    MAX_FEATURES_WIDTH,
    MAX_LED_ROUNDS,
    MAX_PLAIN_STEPS,
    MAX_PREFIX,
)
from foredraft.ngram.tree import NgramParams
from foredraft.types import (
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


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    drafted = draw(tokens)
    steps = draw(st.integers(1, MAX_PLAIN_STEPS))
    return Round(draw(bases), drafted, steps, trees_over(draw, drafted), q_over(draw, drafted))


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    path = draw(tokens)
    accepted = len(path) or draw(st.integers(0, MAX_DRAFT))
    more = draw(some_tokens)
    told = st.lists(logprobs, min_size=accepted + len(more), max_size=accepted + len(more))
    each = draw(st.one_of(st.just(()), told.map(tuple) if accepted < 10 else st.just(())))
    of_prompt = draw(st.lists(logprobs, max_size=3).map(tuple))
    return Verdict(
        draw(bases), accepted, more, draw(timings), path, each, of_prompt, draw(features)
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
        draw(st.one_of(st.just(-1), u32)),
        draw(timings),
        q_over(draw, drafted),
    )


@st.composite
def proposes(draw: st.DrawFn) -> Propose:
    append, keep = draw(tokens), draw(st.integers(0, 1000))
    base = Base(draw(words), draw(u32), keep + len(append), draw(u64))
    return Propose(base, keep, append, draw(st.integers(1, MAX_DRAFT)), draw(features))


@st.composite
def draft_opens(draw: st.DrawFn) -> DraftOpen:
    prefix = draw(some_tokens)
    longest = draw(st.integers(len(prefix), MAX_PREFIX))
    params = DraftParams(
        draw(st.integers(1, 64)),
        draw(st.booleans()),
        draw(st.sampled_from(FirstTokens)),
        draw(st.integers(0, MAX_PREFIX)),
    )
    return DraftOpen(draw(words), prefix, draw(samplings), draw(proposals), longest, params)


records: list[tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    (bases, codec.base_to_pb, codec.base_from_pb),
    (samplings, codec.sampling_to_pb, codec.sampling_from_pb),
    (models, codec.model_to_pb, codec.model_from_pb),
    (timings, codec.timings_to_pb, codec.timings_from_pb),
    (draft_opens(), codec.draft_open_to_pb, codec.draft_open_from_pb),
    (
        st.builds(DraftOpened, models, st.integers(1, MAX_DRAFT)),
        codec.draft_opened_to_pb,
        codec.draft_opened_from_pb,
    ),
    (proposes(), codec.propose_to_pb, codec.propose_from_pb),
    (blocks(), codec.draft_block_to_pb, codec.draft_block_from_pb),
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
        ),
        codec.verify_open_to_pb,
        codec.verify_open_from_pb,
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
    (rounds(), codec.round_to_pb, codec.round_from_pb),
    (verdicts(), codec.verdict_to_pb, codec.verdict_from_pb),
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


def base(prefix_len: int = 1, session_id: str = "s") -> common_pb2.Base:
    return common_pb2.Base(session_id=session_id, prefix_len=prefix_len)


def draft_open(**fields: Any) -> drafter_pb2.DraftOpen:
    good: dict[str, Any] = {
        "protocol": codec.PROTOCOL,
        "session_id": "s",
        "prefix": [1],
        "proposal": "cps",
        "max_len": 9,
    }
    return drafter_pb2.DraftOpen(**(good | fields))


def verify_open(**fields: Any) -> verifier_pb2.VerifyOpen:
    good: dict[str, Any] = {
        "protocol": codec.PROTOCOL,
        "session_id": "s",
        "prefix": [1],
        "max_new_tokens": 1,
    }
    return verifier_pb2.VerifyOpen(**(good | fields))


def source(**fields: Any) -> verifier_pb2.DraftSource:
    ngram = {"depth": 1, "window": 1, "pseudocounts": [1.0], "min_node_prob": 0.1} | fields
    return verifier_pb2.DraftSource(address="host:1", open=draft_open(), ngram=ngram)


def block(**fields: Any) -> drafter_pb2.DraftBlock:
    return drafter_pb2.DraftBlock(**{"base": base(), "proposal": "argmax", **fields})


def one(tokens: Iterable[int], weights: Iterable[int]) -> common_pb2.Candidates:
    return common_pb2.Candidates(tokens=tokens, weights=weights)


BROKEN: list[tuple[Callable[[Any], Any], Any, str]] = [
    (codec.base_from_pb, base(MAX_PREFIX + 1), "base.prefix_len"),
    (codec.base_from_pb, base(session_id=""), "session_id"),
    (codec.base_from_pb, base(session_id="x" * 129), "session_id"),
    (codec.base_from_pb, base(session_id="a\nb"), "session_id"),
    (codec.draft_open_from_pb, draft_open(protocol=0), "protocol"),
    (codec.draft_open_from_pb, draft_open(protocol=2), "protocol"),
    (codec.draft_open_from_pb, draft_open(prefix=[]), "prefix length"),
    (codec.draft_open_from_pb, draft_open(prefix=[1] * 10), "prefix length"),
    (codec.draft_open_from_pb, draft_open(max_len=MAX_PREFIX + 1), "max_len"),
    (codec.draft_open_from_pb, draft_open(proposal="best"), "proposal"),
    (codec.verify_open_from_pb, verify_open(protocol=0), "protocol"),
    (codec.verify_open_from_pb, verify_open(prefix=[]), "prefix length"),
    (codec.verify_open_from_pb, verify_open(max_new_tokens=0), "max_new_tokens"),
    (codec.verify_open_from_pb, verify_open(max_draft=MAX_DRAFT + 1), "max_draft"),
    (codec.draft_opened_from_pb, drafter_pb2.DraftOpened(max_block=0), "max_block"),
    (
        codec.model_from_pb,
        common_pb2.ModelInfo(eos_token_ids=[1] * 65),
        "eos_token_ids entries",
    ),
    (codec.propose_from_pb, drafter_pb2.Propose(base=base(), keep_len=1), "num_tokens"),
    (
        codec.propose_from_pb,
        drafter_pb2.Propose(base=base(3), keep_len=1, append=[1], num_tokens=1),
        "append",
    ),
    (codec.draft_block_from_pb, block(tokens=[1] * (MAX_DRAFT + 1)), "tokens length"),
    (codec.draft_block_from_pb, block(tokens=[1, 2], parents=[-1]), "parents"),
    (codec.draft_block_from_pb, block(tokens=[1, 2], parents=[1, -1]), "parents"),
    (codec.draft_block_from_pb, block(tokens=[1], parents=[-2]), "parents"),
    (codec.draft_block_from_pb, block(proposal=""), "proposal"),
    (
        codec.round_from_pb,
        verifier_pb2.Round(base=base(), draft=[1] * (MAX_DRAFT + 1)),
        "draft length",
    ),
    (codec.draft_open_from_pb, draft_open(params={"steps": 65}), "params.steps"),
    (codec.draft_open_from_pb, draft_open(params={"first": "best"}), "params.first"),
    (codec.verify_open_from_pb, verify_open(features_from=2), "features_from"),
    (
        codec.model_from_pb,
        common_pb2.ModelInfo(features_width=MAX_FEATURES_WIDTH + 1),
        "features_width",
    ),
    (codec.verify_open_from_pb, verify_open(acceptance="all"), "acceptance"),
    (codec.verify_open_from_pb, verify_open(logprobs=21), "logprobs"),
    (codec.verify_open_from_pb, verify_open(grammar_kind="yaml"), "grammar_kind"),
    (
        codec.verify_open_from_pb,
        verify_open(grammar_kind="regex", grammar="a" * 65_537),
        "grammar length",
    ),
    (codec.verify_open_from_pb, verify_open(logits={"biased_token_ids": [1]}), "logit_bias"),
    (
        codec.verify_open_from_pb,
        verify_open(logits={"biased_token_ids": range(1025), "biases": [1.0] * 1025}),
        "logit_bias entries",
    ),
    (codec.draft_block_from_pb, block(tokens=[1, 2], q=[one([1], [1])]), "q"),
    (codec.draft_block_from_pb, block(tokens=[1], q=[one([2], [1])]), "q"),
    (codec.draft_block_from_pb, block(tokens=[1], q=[one([1, 2], [0, 1])]), "q"),
    (codec.draft_block_from_pb, block(tokens=[1], q=[one([1, 1], [1, 1])]), "q"),
    (codec.draft_block_from_pb, block(tokens=[1], q=[one([1, 2], [1])]), "q"),
    (codec.draft_block_from_pb, block(tokens=[1], q=[one(range(65), [1] * 65)]), "q candidates"),
    (
        codec.round_from_pb,
        verifier_pb2.Round(base=base(), draft=[1], q=[one([1, 2], [(1 << 32) - 1, 1])]),
        "q weights' sum",
    ),
    (codec.round_from_pb, verifier_pb2.Round(base=base(), draft=[1], parents=[0]), "parents"),
    (
        codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), accepted=2, path=[0], next_tokens=[1]),
        "path",
    ),
    (lease_codec.source_from_pb, verifier_pb2.DraftSource(address="host"), "draft_source.address"),
    (
        lease_codec.source_from_pb,
        verifier_pb2.DraftSource(address="[::1]:80", open=draft_open(max_len=0)),
        "max_len",
    ),
    (lease_codec.source_from_pb, source(min_expected_tokens=-1.0), "ngram.min_expected_tokens"),
    (lease_codec.source_from_pb, source(depth=257), "ngram.depth"),
    (lease_codec.source_from_pb, source(window=0), "ngram.window"),
    (lease_codec.source_from_pb, source(pseudocounts=[]), "ngram.pseudocounts length"),
    (lease_codec.source_from_pb, source(pseudocounts=[0.0]), "ngram.pseudocounts"),
    (lease_codec.source_from_pb, source(min_node_prob=0.0), "ngram.min_node_prob"),
    (lease_codec.grant_from_pb, verifier_pb2.Grant(rounds=257), "grant.rounds"),
    (lease_codec.grant_from_pb, verifier_pb2.Grant(), "grant.num_draft_tokens"),
    (lease_codec.grant_from_pb, verifier_pb2.Grant(num_draft_tokens=1), "grant.deadline_us"),
    (
        lease_codec.led_round_from_pb,
        verifier_pb2.LedRound(num_draft_tokens=257),
        "led_round.num_draft_tokens",
    ),
    (
        lease_codec.led_round_from_pb,
        verifier_pb2.LedRound(block=block(tokens=[1, 2]), num_draft_tokens=1),
        "tokens length",
    ),
    (lease_codec.lease_ended_from_pb, verifier_pb2.LeaseEnded(fault="bored"), "fault"),
    (codec.round_from_pb, verifier_pb2.Round(base=base()), "plain_steps"),
    (codec.round_from_pb, verifier_pb2.Round(base=base(), plain_steps=65), "plain_steps"),
    (codec.verdict_from_pb, verifier_pb2.Verdict(base=base()), "next_tokens length"),
    (
        codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), accepted=MAX_DRAFT + 1, next_tokens=[1]),
        "accepted",
    ),
    (
        codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), next_tokens=[1, 2], logprobs=[{"logprob": -1}]),
        "logprobs",
    ),
    (
        codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), next_tokens=[1], logprobs=[{"top_token_ids": [1]}]),
        "logprobs",
    ),
]


@pytest.mark.parametrize(("decode", "message", "field"), BROKEN)
def test_a_broken_message_is_refused_by_the_fields_name(
    decode: Callable[[Any], Any], message: Any, field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode(message)
    assert refused.value.param == field


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    from google.protobuf.message import DecodeError

    for message_type, decode in (
        (drafter_pb2.DraftBlock, codec.draft_block_from_pb),
        (drafter_pb2.Propose, codec.propose_from_pb),
        (verifier_pb2.Round, codec.round_from_pb),
        (verifier_pb2.Verdict, codec.verdict_from_pb),
    ):
        try:
            decode(message_type.FromString(data))
        except (DecodeError, InvalidRequest):
            continue


def test_a_seed_travels_as_all_of_its_64_bits() -> None:
    message = codec.sampling_to_pb(SamplingParams(seed=(1 << 64) - 1))
    assert struct.pack("<Q", (1 << 64) - 1) in message.SerializeToString()
