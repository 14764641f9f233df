"""Who may enter, and how often: the same for every door."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from deployments.ingress.doors.keys import Key, Keys
from deployments.ingress.doors.limits import Allowance
from deployments.ingress.doors.tenant import KEY_NAME
from foredraft.errors import Overloaded, Unauthenticated

_BEARER = "bearer"
# What a browser sends once its user has typed a name and a password: the key is the password.
_BASIC = "basic"


class Admission:
    """Lets requests in by their keys; without any key everybody. clock is in seconds."""

    def __init__(self, keys: Sequence[Key], clock: Callable[[], float]) -> None:
        self.asks = bool(keys)
        self._keys = Keys(keys)
        self._clock = clock
        self._allowances = {
            key.name: Allowance(key.requests_per_minute, key.concurrent_requests) for key in keys
        }

    @contextmanager
    def entered(self, authorization: str) -> Iterator[None]:
        """Let one request in while this is entered; authorization is "Bearer KEY", "Basic" with
        the key as password, or empty.

        Raise Unauthenticated, or Overloaded where the key may not now.
        """
        if not self.asks:
            yield
            return
        key = self._keys.of(_key_in(authorization))
        if key is None:
            raise Unauthenticated("a valid key is needed: Authorization: Bearer KEY")
        allowance = self._allowances[key.name]
        wait_s = allowance.take(self._clock())
        if wait_s is not None:
            message = f"key {key.name} has too many requests"
            raise Overloaded(message, retry_after_s=math.ceil(wait_s))
        named = KEY_NAME.set(key.name)
        try:
            yield
        finally:
            KEY_NAME.reset(named)
            allowance.give_back()


def _key_in(authorization: str) -> str:
    """Return the key that an Authorization header holds, "" if none."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() == _BEARER:
        return rest.strip()
    if scheme.lower() != _BASIC:
        return ""
    try:
        decoded = base64.b64decode(rest.strip(), validate=True).decode()
    except ValueError:
        return ""
    return decoded.partition(":")[2]
