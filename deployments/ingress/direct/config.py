"""Where the HTTP port of the ingress's own listens."""

from __future__ import annotations

from pydantic import Field

from deployments.ingress.rpc.config import TlsConfig
from foredraft.strict import StrictModel


class DirectConfig(StrictModel):
    """An HTTP port without Serve's proxy before it."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0: any.")
    keep_alive_timeout_s: float = Field(
        default=90.0,
        gt=0,
        description="Time after which a connection without a request is closed; clients keep "
        "theirs for less, or a request may meet its end.",
    )
    tls: TlsConfig | None = Field(default=None, description="HTTPS; null: HTTP.")

    @property
    def url(self) -> str:
        """Where the port answers."""
        return f"http{'s' if self.tls else ''}://{self.host}:{self.port}"
