"""Where the gRPC door of the ingress listens, and what it asks of those who connect."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from foredraft.strict import StrictModel


class TlsConfig(StrictModel):
    """Files in PEM."""

    keyfile: Path = Field(description="The server's private key.")
    certfile: Path = Field(description="The server's certificate and those that signed it.")
    client_ca: Path | None = Field(
        default=None,
        description="Certificates that sign clients'; if set, only such clients may connect.",
    )


class RpcConfig(StrictModel):
    """`foredraft.v1.GenerationService`."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8001, ge=0, le=65535, description="Port to listen on; 0: any.")
    tls: TlsConfig | None = Field(default=None, description="TLS; null: plain text.")
    max_streams: int = Field(
        default=256, ge=1, description="Most calls at once; more get RESOURCE_EXHAUSTED."
    )
    vllm_engine: bool = Field(
        default=False,
        description="Serve vllm.grpc.engine.VllmEngine, too, for routers that speak it; needs "
        "foredraft[vllm-engine].",
    )
