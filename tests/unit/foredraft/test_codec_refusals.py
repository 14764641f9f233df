"""Messages that break the contract are refused by the field's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.codec import common as common_codec
from foredraft.codec import drafter as drafter_codec
from foredraft.codec import lease as lease_codec
from foredraft.codec import verifier as verifier_codec
from foredraft.errors import InvalidRequest
from foredraft.limits import (
    MAX_DRAFT,
    MAX_FEATURES,
    MAX_FEATURES_WIDTH,
    MAX_PREFIX,
    MAX_REFERENCE,
    MAX_TENSOR_CHUNK,
)
from foredraft.v1 import common_pb2, drafter_pb2, verifier_pb2


def base(prefix_len: int = 1, session_id: str = "s") -> common_pb2.Base:
    return common_pb2.Base(session_id=session_id, prefix_len=prefix_len)


def draft_open(**fields: Any) -> drafter_pb2.DraftOpen:
    good: dict[str, Any] = {
        "protocol": common_codec.PROTOCOL,
        "session_id": "s",
        "prefix": [1],
        "proposal": "cps",
        "max_len": 9,
    }
    return drafter_pb2.DraftOpen(**(good | fields))


def verify_open(**fields: Any) -> verifier_pb2.VerifyOpen:
    good: dict[str, Any] = {
        "protocol": common_codec.PROTOCOL,
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
    (common_codec.base_from_pb, base(MAX_PREFIX + 1), "base.prefix_len"),
    (common_codec.base_from_pb, base(session_id=""), "session_id"),
    (common_codec.base_from_pb, base(session_id="x" * 129), "session_id"),
    (common_codec.base_from_pb, base(session_id="a\nb"), "session_id"),
    (drafter_codec.draft_open_from_pb, draft_open(protocol=0), "protocol"),
    (drafter_codec.draft_open_from_pb, draft_open(protocol=2), "protocol"),
    (drafter_codec.draft_open_from_pb, draft_open(prefix=[]), "prefix length"),
    (drafter_codec.draft_open_from_pb, draft_open(prefix=[1] * 10), "prefix length"),
    (drafter_codec.draft_open_from_pb, draft_open(max_len=MAX_PREFIX + 1), "max_len"),
    (drafter_codec.draft_open_from_pb, draft_open(proposal="best"), "proposal"),
    (verifier_codec.verify_open_from_pb, verify_open(protocol=0), "protocol"),
    (verifier_codec.verify_open_from_pb, verify_open(prefix=[]), "prefix length"),
    (verifier_codec.verify_open_from_pb, verify_open(self_draft=257), "self_draft"),
    (verifier_codec.verify_open_from_pb, verify_open(max_new_tokens=0), "max_new_tokens"),
    (verifier_codec.verify_open_from_pb, verify_open(max_draft=MAX_DRAFT + 1), "max_draft"),
    (
        drafter_codec.draft_opened_from_pb,
        drafter_pb2.DraftOpened(max_draft_tokens=0),
        "max_draft_tokens",
    ),
    (
        common_codec.model_from_pb,
        common_pb2.ModelInfo(eos_token_ids=[1] * 65),
        "eos_token_ids entries",
    ),
    (drafter_codec.propose_from_pb, drafter_pb2.Propose(base=base(), keep_len=1), "num_tokens"),
    (
        drafter_codec.propose_from_pb,
        drafter_pb2.Propose(base=base(3), keep_len=1, append=[1], num_tokens=1),
        "append",
    ),
    (
        drafter_codec.propose_ahead_from_pb,
        drafter_pb2.ProposeAhead(base=base(1), keep_len=1, num_tokens=1),
        "outcomes length",
    ),
    (
        drafter_codec.propose_ahead_from_pb,
        drafter_pb2.ProposeAhead(base=base(1), keep_len=1, num_tokens=1, outcomes=[{}] * 65),
        "outcomes length",
    ),
    (
        drafter_codec.propose_ahead_from_pb,
        drafter_pb2.ProposeAhead(base=base(1), keep_len=1, num_tokens=1, outcomes=[{}]),
        "outcomes tokens length",
    ),
    (
        drafter_codec.propose_ahead_from_pb,
        drafter_pb2.ProposeAhead(base=base(3), keep_len=1, num_tokens=1, outcomes=[{}]),
        "append",
    ),
    (drafter_codec.draft_open_from_pb, draft_open(num_guesses=65), "num_guesses"),
    (drafter_codec.draft_open_from_pb, draft_open(prompt_len=4), "prompt_len"),
    (
        drafter_codec.draft_blocks_from_pb,
        drafter_pb2.DraftBlocks(blocks=[block()] * 65),
        "blocks length",
    ),
    (drafter_codec.draft_block_from_pb, block(guesses=[{}] * 65), "guesses length"),
    (drafter_codec.draft_block_from_pb, block(guesses=[{"node": 0}]), "guesses.node"),
    (drafter_codec.draft_block_from_pb, block(guesses=[{"node": -2}]), "guesses.node"),
    (
        drafter_codec.draft_block_from_pb,
        block(guesses=[{"node": -1, "probability": 1.5}]),
        "guesses.probability",
    ),
    (drafter_codec.draft_block_from_pb, block(tokens=[1] * (MAX_DRAFT + 1)), "tokens length"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1, 2], parents=[-1]), "parents"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1, 2], parents=[1, -1]), "parents"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1], parents=[-2]), "parents"),
    (drafter_codec.draft_block_from_pb, block(proposal=""), "proposal"),
    (
        verifier_codec.round_from_pb,
        verifier_pb2.Round(base=base(), draft=[1] * (MAX_DRAFT + 1)),
        "draft length",
    ),
    (drafter_codec.draft_block_from_pb, block(tokens=[1, 2], expected=[0.5]), "expected"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1], expected=[1.5]), "expected"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1], expected=[float("nan")]), "expected"),
    (
        verifier_codec.round_from_pb,
        verifier_pb2.Round(base=base(), draft=[1], expected=[0.5, 0.1]),
        "expected",
    ),
    (
        verifier_codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), next_tokens=[1], left_out=257),
        "left_out",
    ),
    (
        verifier_codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), next_tokens=[1], price={"row_s": -1.0}),
        "price.row_s",
    ),
    (drafter_codec.draft_open_from_pb, draft_open(params={"steps": 65}), "params.steps"),
    (
        drafter_codec.draft_open_from_pb,
        draft_open(params={"warmup_proposal": "best"}),
        "params.warmup_proposal",
    ),
    (verifier_codec.verify_open_from_pb, verify_open(features_from=2), "features_from"),
    (verifier_codec.verify_open_from_pb, verify_open(tensor_store="s" * 65), "tensor_store"),
    (verifier_codec.verify_open_from_pb, verify_open(groups=["a"] * 5), "groups"),
    (verifier_codec.verify_open_from_pb, verify_open(groups=["g" * 65]), "groups"),
    (verifier_codec.verify_open_from_pb, verify_open(groups=[""]), "groups"),
    (
        drafter_codec.draft_opened_from_pb,
        drafter_pb2.DraftOpened(max_draft_tokens=1, tensor_store="\n"),
        "tensor_store",
    ),
    (common_codec.part_from_pb, common_pb2.FeatureChunk(), "features.data length"),
    (
        common_codec.part_from_pb,
        common_pb2.FeatureChunk(data=bytes(MAX_TENSOR_CHUNK + 1)),
        "features.data length",
    ),
    (
        common_codec.part_from_pb,
        common_pb2.FeatureChunk(data=b"a", reference=b"b", size=1),
        "features",
    ),
    (
        common_codec.part_from_pb,
        common_pb2.FeatureChunk(reference=bytes(MAX_REFERENCE + 1), size=1),
        "features.reference length",
    ),
    (common_codec.part_from_pb, common_pb2.FeatureChunk(reference=b"b"), "features.size"),
    (
        common_codec.part_from_pb,
        common_pb2.FeatureChunk(reference=b"b", size=MAX_FEATURES + 1),
        "features.size",
    ),
    (
        common_codec.model_from_pb,
        common_pb2.ModelInfo(features_width=MAX_FEATURES_WIDTH + 1),
        "features_width",
    ),
    (verifier_codec.verify_open_from_pb, verify_open(acceptance="all"), "acceptance"),
    (verifier_codec.verify_open_from_pb, verify_open(logprobs=21), "logprobs"),
    (verifier_codec.verify_open_from_pb, verify_open(grammar_kind="yaml"), "grammar_kind"),
    (
        verifier_codec.verify_open_from_pb,
        verify_open(grammar_kind="regex", grammar="a" * 65_537),
        "grammar length",
    ),
    (
        verifier_codec.verify_open_from_pb,
        verify_open(logits={"biased_token_ids": [1]}),
        "logit_bias",
    ),
    (
        verifier_codec.verify_open_from_pb,
        verify_open(logits={"biased_token_ids": range(1025), "biases": [1.0] * 1025}),
        "logit_bias entries",
    ),
    (drafter_codec.draft_block_from_pb, block(tokens=[1, 2], q=[one([1], [1])]), "q"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1], q=[one([2], [1])]), "q"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1], q=[one([1, 2], [0, 1])]), "q"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1], q=[one([1, 1], [1, 1])]), "q"),
    (drafter_codec.draft_block_from_pb, block(tokens=[1], q=[one([1, 2], [1])]), "q"),
    (
        drafter_codec.draft_block_from_pb,
        block(tokens=[1], q=[one(range(65), [1] * 65)]),
        "q candidates",
    ),
    (
        verifier_codec.round_from_pb,
        verifier_pb2.Round(base=base(), draft=[1], q=[one([1, 2], [(1 << 32) - 1, 1])]),
        "q weights' sum",
    ),
    (
        verifier_codec.round_from_pb,
        verifier_pb2.Round(base=base(), draft=[1], parents=[0]),
        "parents",
    ),
    (
        verifier_codec.verdict_from_pb,
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
    (verifier_codec.round_from_pb, verifier_pb2.Round(base=base()), "plain_steps"),
    (verifier_codec.round_from_pb, verifier_pb2.Round(base=base(), plain_steps=65), "plain_steps"),
    (verifier_codec.verdict_from_pb, verifier_pb2.Verdict(base=base()), "next_tokens length"),
    (
        verifier_codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), accepted=MAX_DRAFT + 1, next_tokens=[1]),
        "accepted",
    ),
    (
        verifier_codec.verdict_from_pb,
        verifier_pb2.Verdict(base=base(), next_tokens=[1, 2], logprobs=[{"logprob": -1}]),
        "logprobs",
    ),
    (
        verifier_codec.verdict_from_pb,
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
        (drafter_pb2.DraftBlock, drafter_codec.draft_block_from_pb),
        (drafter_pb2.Propose, drafter_codec.propose_from_pb),
        (drafter_pb2.ProposeAhead, drafter_codec.propose_ahead_from_pb),
        (verifier_pb2.Round, verifier_codec.round_from_pb),
        (verifier_pb2.Verdict, verifier_codec.verdict_from_pb),
    ):
        try:
            decode(message_type.FromString(data))
        except (DecodeError, InvalidRequest):
            continue
