"""Any mix of faults gives the tokens of plain decoding."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import (
    ForedraftError,
    Unavailable,
)
from foredraft.messages import DraftBlock, Propose
from orchestrator.length.config import FixedConfig
from tests.support.examples import examples
from tests.support.orchestrator.peers import (
    ScriptedDrafter,
    ScriptedVerifier,
    config,
    cut,
    perfect,
    request,
    true_block,
    wrong_at,
)
from tests.support.orchestrator.running import FIXED, run

FAULTS = (None, None, None, "lost", "late", "wrong", "guess", "nonsense", "short")


@examples(40)
@given(
    drafting=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=12),
    verifying=st.lists(
        st.sampled_from((None, None, None, "before", "after", "drain")), min_size=1, max_size=8
    ),
    max_new=st.integers(1, 80),
    stops=st.sets(st.integers(0, 49), max_size=2),
    adaptive=st.booleans(),
)
def test_any_mix_of_faults_gives_the_tokens_of_plain_decoding(
    drafting: list[str | None],
    verifying: list[str | None],
    max_new: int,
    stops: set[int],
    adaptive: bool,
) -> None:
    drafter, verifier = ScriptedDrafter(perfect), ScriptedVerifier()

    async def script(index: int, ask: Propose, prefix: Sequence[int]) -> DraftBlock:
        block = true_block(ask, prefix)
        match drafting[index % len(drafting)]:
            case "lost":
                raise ForedraftError("gone")
            case "late":
                await asyncio.sleep(0.004)
            case "wrong":
                return wrong_at(block, index % 3)
            case "guess":
                return wrong_at(block, len(block.tokens))
            case "nonsense":
                return replace(block, tokens=(-5,))
            case "short":
                return cut(block, 1)
        return block

    def fault(index: int) -> str | None:
        # Faults end, so that the retries suffice.
        return verifying[index] if index < len(verifying) else None

    async def before(index: int) -> None:
        if fault(index) == "before":
            raise Unavailable("gone")
        if fault(index) == "drain":
            verifier.live[-1].draining = True

    async def after(index: int) -> None:
        if fault(index) == "after":
            raise Unavailable("gone")

    drafter.script, verifier.before, verifier.after = script, before, after
    settings_ = config(draft_deadline_ms=2.0).model_copy(
        update={"verifier_retry": FIXED.verifier_retry.model_copy(update={"attempts": 9})}
        | ({} if adaptive else {"adl": FixedConfig(k=5)})
    )
    asyncio.run(run(request(max_new, stop_token_ids=tuple(stops)), drafter, verifier, settings_))
