"""The door of the HTTP ingress: without a key only health, with one as much as it may."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.ingress.doors.keys import Key, Keys
from deployments.ingress.doors.limits import Allowance
from deployments.ingress.doors.refusal import refuse

OPEN = frozenset({"/health", "/health/live", "/health/ready"})
_SCHEME = "bearer "


class Guard:
    """An ASGI app around another one. Every route but health needs a key, unknown ones too.

    clock is in seconds. A request under way counts until its last byte is sent or its client left.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[Key], clock: Callable[[], float]) -> None:
        self._app = app
        self._keys = Keys(keys)
        self._clock = clock
        self._allowances = {
            key.name: Allowance(key.requests_per_minute, key.concurrent_requests) for key in keys
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 401 or 429."""
        if scope["type"] != "http" or path_of(scope) in OPEN:
            await self._app(scope, receive, send)
            return
        key = self._keys.of(_presented(scope))
        if key is None:
            message = "a valid key is needed: Authorization: Bearer KEY"
            scheme = (b"www-authenticate", b"Bearer")
            await refuse(send, 401, "authentication_error", message, scheme)
            return
        allowance = self._allowances[key.name]
        wait_s = allowance.take(self._clock())
        if wait_s is not None:
            message = f"key {key.name} has too many requests"
            retry = (b"retry-after", str(math.ceil(wait_s)).encode())
            await refuse(send, 429, "rate_limit_error", message, retry)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            allowance.give_back()


def path_of(scope: Scope) -> str:
    """Return the request's path below the application's prefix."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def _presented(scope: Scope) -> str:
    """Return the key that the request has, "" if none."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) != 1:
        return ""
    value: str = found[0].decode("latin-1")
    return value[len(_SCHEME) :].strip() if value.lower().startswith(_SCHEME) else ""
