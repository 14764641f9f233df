"""What the orchestrator needs from the services; gRPC clients and in-process engines fit both.

A stream is a session's life on one replica: closing it frees the state there. Every method raises
an error of foredraft.errors: Unavailable or DeadlineExceeded when the peer is gone or late.
"""

from __future__ import annotations

from typing import Protocol

from foredraft.denoising import Advance, Advanced, DenoiseOpen
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


class DraftStream(Protocol):
    """One session on one drafter; proposals are answered in order."""

    @property
    def opened(self) -> DraftOpened:
        """The drafter's description of itself on open."""

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the block for request.base; cancelling leaves the stream usable."""

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        """Return the blocks for outcomes, fewer or none if the drafter has no room for more."""

    async def close(self) -> None:
        """End the session on the drafter; never raises."""


class DrafterPort(Protocol):
    """Where a session finds a drafter."""

    async def open(self, request: DraftOpen) -> DraftStream:
        """Open the session on some drafter replica."""


class VerifyStream(Protocol):
    """One session on one verifier; one round at a time."""

    @property
    def model(self) -> ModelInfo:
        """The target model, as the verifier described it on open."""

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""

    async def verify(self, request: Round) -> Verdict:
        """Return the verdict on request."""

    async def close(self) -> None:
        """End the session on the verifier; never raises."""


class VerifierPort(Protocol):
    """Where a session finds a verifier."""

    async def open(self, request: VerifyOpen) -> VerifyStream:
        """Open the session on some verifier replica and wait until it is admitted."""


class DenoiseStream(Protocol):
    """One session on one denoiser; one advance at a time."""

    @property
    def model(self) -> ModelInfo:
        """The target model, as the denoiser described it on open."""

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""

    async def advance(self, request: Advance) -> Advanced:
        """Return the answer to request."""

    async def close(self) -> None:
        """End the session on the denoiser; never raises."""


class DenoiserPort(Protocol):
    """Where a session finds a denoiser."""

    async def open(self, request: DenoiseOpen) -> DenoiseStream:
        """Open the session on some denoiser replica and wait until it is admitted."""
