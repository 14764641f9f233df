"""What both services' configurations have in common."""

from __future__ import annotations

from pydantic import Field

from foredraft.strict import StrictModel


class ServiceConfig(StrictModel):
    """Where a service listens and how long it waits."""

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
