"""A drafter that reads the target's hidden states, over real gRPC: DFlash on a Qwen3 target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foredraft import limits
from foredraft.features.fusion import read_fusion
from foredraft.features.wire import size
from foredraft.messages import Verdict
from foredraft.types import Price
from orchestrator.controller_state import ControllerState
from orchestrator.length.config import GoodputConfig
from tests.support.families.dflash import HIDDEN, as_tensor, fused, write_drafter
from tests.support.families.served_dflash import (
    CONFIG,
    PROMPT,
    Checkpoints,
    Served,
    Watched,
    decoded,
    drafting,
    told_of,
    verifying,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_decoding_is_lossless_and_features_are_those_of_transformers(
    served: Served, checkpoints: Checkpoints, temperature: float
) -> None:
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, temperature, speculate=False)
    told, sent = Watched(verifier), Watched(drafter)
    tokens, report = await decoded(sent, told, temperature)
    assert tokens == plain and len(tokens) == 60
    assert report.draft_rounds > 10
    # The target's noise, which it shares, lets even a random drafter be right; greedily it is not.
    assert report.num_accepted > 10 or temperature == 0
    assert report.run_ahead_rounds == 0
    # Not asked for before the drafter said that it needs them; then from the first token on.
    hashes = [each.features_hash for each in told.opens]
    assert hashes == ["", read_fusion(checkpoints.drafter).hash]
    features = told_of(told)
    text = [*PROMPT, *tokens]
    count = len(features) // size(1, HIDDEN)
    assert len(text) - 1 <= count
    expected = fused(checkpoints.target, checkpoints.weights, text)
    torch.testing.assert_close(
        as_tensor(features)[: len(text) - 1], expected[:-1], atol=1e-3, rtol=2**-7
    )
    # The drafter was given each of them once.
    given = b"".join(propose.features for propose in sent.passed)
    assert features.startswith(given) and len(given) > size(len(PROMPT), HIDDEN)


async def test_what_the_last_request_learnt_saves_the_next_one_a_move(
    served: Served,
) -> None:
    verifier, drafter = served
    state, told = ControllerState(), Watched(verifier)
    first, report = await decoded(drafter, told, state=state)
    assert report.verifier_moves == 1
    again, report = await decoded(drafter, told, state=state)
    assert (again, report.verifier_moves) == (first, 0)
    assert report.draft_rounds > 3


async def test_another_drafter_is_given_all_features_again_in_chunks(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_TENSOR_CHUNK", 1000)
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, speculate=False)
    told, sent = Watched(verifier), Watched(drafter)
    sent.lose = {4}
    tokens, report = await decoded(sent, told)
    assert tokens == plain
    assert report.drafter_attaches == 2 and len(sent.opens) == 2
    again = sent.passed[4]
    assert len(again.features) == size(again.base.prefix_len - 1, HIDDEN) > 4000
    assert told_of(told).startswith(again.features)
    assert report.draft_rounds > 5


async def test_another_verifier_is_asked_for_what_is_not_there_yet(
    served: Served,
    checkpoints: Checkpoints,
) -> None:
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, speculate=False)
    told, sent = Watched(verifier), Watched(drafter)
    # Its fourth verdict is lost on the way.
    told.lose = {4}
    tokens, report = await decoded(sent, told)
    assert tokens == plain
    assert report.verifier_moves == 2
    again = told.opens[2]
    assert again.features_from == len(again.prefix) - 1 > len(PROMPT)
    assert report.draft_rounds > 5
    kept = [verdict.features for at, verdict in enumerate(told.passed, 1) if at != 4]
    expected = fused(checkpoints.target, checkpoints.weights, [*PROMPT, *tokens])
    found = as_tensor(b"".join(kept))[: len(expected) - 1]
    torch.testing.assert_close(found, expected[:-1], atol=1e-3, rtol=2**-7)


async def test_a_session_that_stops_drafting_needs_no_features_until_it_drafts_again(
    served: Served,
) -> None:
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, speculate=False, max_new_tokens=88)
    busy, free = Price(64, 0.01, 0.1), Price(1, 0.01, 1e-5)

    def priced(verdict: Verdict) -> Verdict:
        return replace(verdict, price=busy if 4 <= len(told.passed) < 9 else free)

    told, sent = Watched(verifier, priced), Watched(drafter)
    config = CONFIG.model_copy(update={"adl": GoodputConfig(lengths=(0, 4))})
    tokens, report = await decoded(sent, told, config=config, max_new_tokens=88)
    assert tokens == plain
    lengths = [one.k for one in report.trace]
    # How soon it stops again depends on the machine.
    again = lengths.index(4, lengths.index(0))
    # The verifier sent none after a few plain rounds, and all of them again once it was reopened.
    assert not told.passed[again - 1].features
    assert len(told.opens) == 3 and told.opens[-1].features_from == 0
    assert report.drafter_attaches == 2


@pytest.mark.slow
async def test_a_drafter_of_another_fusion_is_refused_and_decoding_goes_on(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    write_drafter(tmp_path / "other", seed=9)
    for features in (tmp_path / "other", None):
        async with (
            verifying(checkpoints.target, features) as verifier,
            drafting(checkpoints) as drafter,
        ):
            plain, _ = await decoded(drafter, verifier, speculate=False)
            sent, told = Watched(drafter), Watched(verifier)
            tokens, report = await decoded(sent, told)
        assert tokens == plain
        assert report.draft_rounds == 0 and not sent.passed
        assert (
            report.drafter_refusal
            == "drafter dflash needs features that target target does not have"
        )
        assert not told_of(told)
        assert len(sent.opens) == len(told.opens) == 1


async def test_nothing_is_told_that_nobody_asked_for(checkpoints: Checkpoints) -> None:
    async with verifying(checkpoints.target, checkpoints.drafter) as verifier:
        told = Watched(verifier)
        await decoded(None, told, speculate=False)
        assert told.opens[0].features_hash == "" and not told_of(told)
