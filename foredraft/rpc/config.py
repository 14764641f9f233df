"""What both services' configurations have in common."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from foredraft.pacing.config import PaceConfig
from foredraft.strict import StrictModel


class LinkConfig(StrictModel):
    """A delay of messages between services, both ways and in their order: for measurements."""

    delay_ms: float = Field(
        default=0.0, ge=0, le=60_000, description="Delay of each message, in milliseconds."
    )
    jitter_ms: float = Field(
        default=0.0,
        ge=0,
        le=60_000,
        description="Most that is added to the delay at random, in milliseconds.",
    )


NO_DELAY = LinkConfig()


class ServiceConfig(StrictModel):
    """Where a service listens, how long it waits, and how it is measured."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(
        default=0, ge=0, le=65535, description="Port to listen on; 0 picks a free one."
    )
    open_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="Most time between a stream's start and its open message, in seconds.",
    )
    idle_ttl_s: float = Field(
        default=300.0, gt=0, description="Time without a message that ends a session, in seconds."
    )
    grace_s: float = Field(
        default=20.0,
        ge=0,
        description="Time for open sessions to end when the service stops, in seconds.",
    )
    mtls: Path | None = Field(
        default=None,
        description="Folder with ca.crt and the service's certificate and key, as `foredraft "
        "certificates` makes it: only peers with a certificate of that authority and a fitting "
        "role may connect; null: plain text, for a network that nobody else is on.",
    )
    token_file: Path | None = Field(
        default=None,
        description="File with a token that callers must show. Null: none is asked for, but under "
        "Ray Serve, where the cluster has one of its own.",
    )
    reflection: bool = Field(
        default=False, description="Whether gRPC reflection describes the service to any peer."
    )
    recording: Path | None = Field(
        default=None,
        description="Recording of the model's decisions, which are played back instead of computed "
        "(made by foredraft bench paced).",
    )
    pace: PaceConfig | None = Field(
        default=None,
        description="Modelled device whose time each forward pass takes; null: the time it takes.",
    )
