"""Features that are spoilt or for which there is no room cost drafts, never tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from foredraft.errors import Overloaded
from foredraft.features.wire import size
from foredraft.messages import DraftOpen, Propose, VerifyOpen
from tests.support.families.dflash import HIDDEN
from tests.support.families.served_dflash import (
    Served,
    Watched,
    decoded,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAN = b"\xc0\x7f"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda features: features[:-2], "must have"),
        (lambda features: features[:-2] + NAN, "not finite"),
    ],
)
async def test_features_that_a_verifier_spoilt_cost_drafts_alone(
    served: Served, spoil: Callable[[bytes], bytes], why: str
) -> None:
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, speculate=False)
    told = Watched(verifier, lambda verdict: replace(verdict, features=spoil(verdict.features)))
    sent = Watched(drafter)
    tokens, report = await decoded(sent, told)
    assert tokens == plain
    assert not sent.passed and report.verifier_moves == 1
    assert report.drafter_refusal is not None
    assert "features" in report.drafter_refusal and why in report.drafter_refusal


@pytest.mark.parametrize(
    "spoil",
    [
        lambda features: features + bytes(size(500, HIDDEN)),
        lambda features: features[:-2] + NAN,
    ],
)
async def test_features_that_were_spoilt_on_the_way_are_refused_by_the_drafter(
    served: Served, spoil: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, speculate=False)
    spoilt = 0

    def spoil_first(propose: Propose) -> Propose:
        nonlocal spoilt
        spoilt += 1
        return replace(propose, features=spoil(propose.features)) if spoilt < 3 else propose

    tokens, report = await decoded(Watched(drafter, spoil_first), verifier)
    assert tokens == plain
    assert "drafter left: features" in caplog.text
    assert report.drafter_attaches > 1 and report.draft_rounds > 0


async def test_without_room_for_another_open_it_is_decoded_plainly_in_long_steps(
    served: Served,
) -> None:
    class Full(Watched):
        async def open(self, request: DraftOpen | VerifyOpen) -> Any:
            if self.opens:
                raise Overloaded("full")
            return await super().open(request)

    verifier, drafter = served
    plain, _ = await decoded(drafter, verifier, speculate=False)
    tokens, report = await decoded(drafter, full := Full(verifier))
    assert tokens == plain
    assert (report.draft_rounds, report.verifier_moves) == (0, 0)
    # Short ones until the drafter has refused, which takes its time.
    assert max(len(verdict.next_tokens) for verdict in full.passed) > 1
