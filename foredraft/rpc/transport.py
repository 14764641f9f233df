"""How services reach each other: in plain text, or by mutual TLS with a role in each certificate.

A certificate names its holder's role as a DNS name, `drafter.foredraft` for a drafter. A client
takes only a peer with the name of the role that it wants to talk to, whatever the address; a server
takes only callers whose role may call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import grpc

from foredraft.errors import ConfigError, PermissionDenied

_SAN = "x509_subject_alternative_name"

Options = Sequence[tuple[str, Any]]


class Role(StrEnum):
    """What a process is."""

    ORCHESTRATOR = "orchestrator"
    VERIFIER = "verifier"
    DRAFTER = "drafter"
    DENOISER = "denoiser"

    @property
    def host(self) -> str:
        """The DNS name in its certificate."""
        return f"{self}.foredraft"


CALLERS = {
    Role.VERIFIER: frozenset({Role.ORCHESTRATOR}),
    Role.DRAFTER: frozenset({Role.ORCHESTRATOR, Role.VERIFIER}),
    Role.DENOISER: frozenset({Role.ORCHESTRATOR}),
}
"""Who may open sessions at whom."""


class Transport(Protocol):
    """One process's way to others."""

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Have a server listen on HOST:PORT, and return its port; raise RuntimeError if taken."""

    def channel(self, address: str, peer: Role, options: Options) -> grpc.aio.Channel:
        """Return a channel to a peer of that role."""

    def check_caller(self, context: Any, service: Role) -> None:
        """Raise PermissionDenied unless the caller of an RPC may call that service."""


class PlainText:
    """Neither encryption nor authentication: for networks that nobody else is on."""

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Listen in plain text."""
        return int(server.add_insecure_port(address))

    def channel(self, address: str, peer: Role, options: Options) -> grpc.aio.Channel:
        """Return a channel to whoever listens there."""
        return grpc.aio.insecure_channel(address, options=options)

    def check_caller(self, context: Any, service: Role) -> None:
        """Let everybody call."""


PLAIN_TEXT = PlainText()


class MutualTls:
    """TLS in which both ends show a certificate of one authority."""

    def __init__(self, ca: bytes, certificate: bytes, key: bytes) -> None:
        self._server = grpc.ssl_server_credentials([(key, certificate)], ca, True)
        self._client = grpc.ssl_channel_credentials(ca, key, certificate)

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Listen for holders of a certificate."""
        return int(server.add_secure_port(address, self._server))

    def channel(self, address: str, peer: Role, options: Options) -> grpc.aio.Channel:
        """Return a channel that connects only if a peer of that role answers."""
        named = (*options, ("grpc.ssl_target_name_override", peer.host))
        return grpc.aio.secure_channel(address, self._client, options=named)

    def check_caller(self, context: Any, service: Role) -> None:
        """Raise PermissionDenied unless the caller's certificate names a role that may call."""
        names = {name.decode(errors="replace") for name in context.auth_context().get(_SAN, ())}
        if names.isdisjoint(role.host for role in CALLERS[service]):
            raise PermissionDenied(f"the caller's certificate may not call a {service}")


def transport_of(folder: Path | None, role: Role, param: str = "mtls") -> Transport:
    """Return the transport of a process with a role: plain text without a folder.

    The folder has ca.crt, and the role's certificate and key, ROLE.crt and ROLE.key, in PEM. Raise
    ConfigError naming the file that cannot be read.
    """
    if folder is None:
        return PLAIN_TEXT
    parts = []
    for name in ("ca.crt", f"{role}.crt", f"{role}.key"):
        try:
            parts.append((folder / name).read_bytes())
        except OSError as error:
            raise ConfigError(f"{param}: {folder / name}: {error.strerror}", param=param) from None
    return MutualTls(*parts)
