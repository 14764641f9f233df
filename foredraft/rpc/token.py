"""A token that callers of a service show; under Ray Serve only the cluster's processes can read it.

Mutual TLS (transport.py) proves what a peer is; the token keeps out who merely reaches the port,
without any certificates to hand out.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from foredraft.errors import ConfigError

_HEADER = "authorization"
# What probes ask without a token.
_OPEN = "/grpc.health.v1.Health/"
# A stream that writes nothing for as long is refused all the same.
_FIRST_MESSAGE_S = 1.0


def shown(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call with a token, nothing for none."""
    return ((_HEADER, f"Bearer {token}"),) if token else ()


def asking(token: str) -> tuple[grpc.aio.ServerInterceptor, ...]:
    """Return what has a server ask for a token, nothing for none."""
    return (_Asking(token),) if token else ()


def token_in(path: Path | None) -> str:
    """Return the token in a file, "" without one; raise ConfigError naming token_file."""
    if path is None:
        return ""
    try:
        found = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"token_file: {path}: {error.strerror}", param="token_file") from None
    if not (found.isascii() and found.isprintable() and len(found) >= 16):
        raise ConfigError(
            f"token_file: {path} must hold 16 printable ASCII characters or more",
            param="token_file",
        )
    return found


class _Asking(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types of its own
    """Lets in calls that show the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's handler, or one that refuses."""
        handler = await continuation(details)
        shown = dict(details.invocation_metadata or ()).get(_HEADER, "")
        known = hmac.compare_digest(str(shown).encode(), self._expected)
        if handler is None or known or details.method.startswith(_OPEN):
            return handler
        return _refusal(handler)


def _refusal(handler: Any) -> Any:
    """Return a handler of the same kind that refuses every call."""

    async def refuse(request: Any, context: Any) -> None:
        if handler.request_streaming:
            await _first_message(request)
        message = "a valid token is needed: authorization: Bearer TOKEN"
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    return kinds[handler.request_streaming, handler.response_streaming](refuse)


async def _first_message(requests: Any) -> None:
    """Wait for a stream's first message: a client that writes to an ended stream loses its status.

    grpc.aio then has INTERNAL in its place, which reads as a replica that left.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_MESSAGE_S):
            await anext(requests, None)
