"""The in-process ports hand everything to the runners and free what they opened."""

from __future__ import annotations

import asyncio
from typing import TypeVar

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
from foredraft.types import ModelInfo
from orchestrator.drive.pipeline import generate
from orchestrator.in_process import LocalDrafter, LocalVerifier
from orchestrator.length.config import FixedConfig
from orchestrator.ports import DrafterPort, VerifierPort
from tests.support.orchestrator.peers import (
    MODEL,
    PROMPT,
    Collected,
    config,
    decide,
    plain,
    request,
    true_block,
)

T = TypeVar("T")


def _settle(answer: asyncio.Future[T], block: T) -> None:
    if not answer.done():
        answer.set_result(block)


class DraftRunner:
    """A batcher's surface; answers come a moment later, as from another thread."""

    def __init__(self) -> None:
        self.open_sessions: dict[int, list[int]] = {}
        self.ahead: list[int] = []

    async def open(self, request: DraftOpen) -> tuple[int, DraftOpened]:
        self.open_sessions[7] = list(request.prefix)
        return 7, DraftOpened(MODEL, 8)

    def propose(self, handle: int, request: Propose) -> asyncio.Future[DraftBlock]:
        named = self.open_sessions[handle]
        named[request.keep_len :] = request.append
        answer: asyncio.Future[DraftBlock] = asyncio.get_running_loop().create_future()
        block = true_block(request, tuple(named))
        asyncio.get_running_loop().call_soon(_settle, answer, block)
        return answer

    def propose_ahead(
        self, handle: int, request: ProposeAhead
    ) -> asyncio.Future[tuple[DraftBlock, ...]]:
        answer: asyncio.Future[tuple[DraftBlock, ...]] = asyncio.get_running_loop().create_future()
        self.ahead.append(handle)
        asyncio.get_running_loop().call_soon(_settle, answer, ())
        return answer

    def close(self, handle: int) -> None:
        del self.open_sessions[handle]


class VerifyRunner:
    """A verifier runner's surface."""

    def __init__(self) -> None:
        self.open_sessions: dict[int, list[int]] = {}

    @property
    def info(self) -> ModelInfo:
        return MODEL

    async def open(self, request: VerifyOpen) -> int:
        self.open_sessions[9] = list(request.prefix)
        return 9

    async def verify(self, handle: int, request: Round) -> Verdict:
        await asyncio.sleep(0.001)
        return decide(self.open_sessions[handle], request)

    def close(self, handle: int) -> None:
        del self.open_sessions[handle]


async def test_a_request_runs_on_runners_and_leaves_nothing_open() -> None:
    drafts, verdicts = DraftRunner(), VerifyRunner()
    drafter: DrafterPort = LocalDrafter(drafts)
    verifier: VerifierPort = LocalVerifier(verdicts)
    got = Collected()
    async for event in generate(request(), drafter, verifier, config(adl=FixedConfig(k=4))):
        got.add(event)
    assert got.tokens == plain(PROMPT, 60)
    assert got.summary is not None and got.summary.report.run_ahead_hits > 0
    assert not drafts.open_sessions and not verdicts.open_sessions
