"""Both ports inside one process: the services' runners without a network between them.

The runners are handed in and need only the methods named here, so nothing of the model services,
and no torch, is imported. Their engines run in worker threads of their own.
"""

from __future__ import annotations

from asyncio import Future
from typing import Protocol

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


class DraftRunner(Protocol):
    """What drafter_service.batcher.Batcher offers; a handle names an open session."""

    async def open(self, request: DraftOpen) -> tuple[int, DraftOpened]:
        """Open a session."""

    def propose(self, handle: int, request: Propose) -> Future[DraftBlock]:
        """Queue a proposal."""

    def propose_ahead(self, handle: int, request: ProposeAhead) -> Future[tuple[DraftBlock, ...]]:
        """Queue a proposal for predicted outcomes."""

    def close(self, handle: int) -> None:
        """Free a session."""


class VerifyRunner(Protocol):
    """What verifier_service.runner.Runner offers; a handle names an open session."""

    @property
    def info(self) -> ModelInfo:
        """The target model."""

    async def open(self, request: VerifyOpen) -> int:
        """Open a session."""

    async def verify(self, handle: int, request: Round) -> Verdict:
        """Return the verdict on a round."""

    def close(self, handle: int) -> None:
        """Free a session."""


class LocalDraftStream:
    """A DraftStream over a runner; a process that ends has no other replica for its sessions."""

    draining = False

    def __init__(self, runner: DraftRunner, handle: int, opened: DraftOpened) -> None:
        self._runner = runner
        self._handle = handle
        self.opened = opened

    async def propose(self, request: Propose) -> DraftBlock:
        return await self._runner.propose(self._handle, request)

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        return await self._runner.propose_ahead(self._handle, request)

    async def close(self) -> None:
        self._runner.close(self._handle)


class LocalDrafter:
    """A DrafterPort over a runner."""

    def __init__(self, runner: DraftRunner) -> None:
        self._runner = runner

    async def open(self, request: DraftOpen) -> LocalDraftStream:
        handle, opened = await self._runner.open(request)
        return LocalDraftStream(self._runner, handle, opened)


class LocalVerifyStream:
    """A VerifyStream over a runner."""

    draining = False

    def __init__(self, runner: VerifyRunner, handle: int) -> None:
        self._runner = runner
        self._handle = handle
        self.model = runner.info

    async def verify(self, request: Round) -> Verdict:
        return await self._runner.verify(self._handle, request)

    async def close(self) -> None:
        self._runner.close(self._handle)


class LocalVerifier:
    """A VerifierPort over a runner."""

    def __init__(self, runner: VerifyRunner) -> None:
        self._runner = runner

    async def open(self, request: VerifyOpen) -> LocalVerifyStream:
        return LocalVerifyStream(self._runner, await self._runner.open(request))
