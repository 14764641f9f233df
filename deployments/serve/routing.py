"""Ports over replicas that Ray Serve picks, once per session; then gRPC goes straight to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from deployments.serve.choices import Choices
from foredraft.errors import (
    ForedraftError,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

Request = TypeVar("Request", contravariant=True)
Stream = TypeVar("Stream", covariant=True)
Req = TypeVar("Req")
Str = TypeVar("Str")

_ATTEMPTS = 3
# Serve may still choose a replica that has just been lost: it is asked so often for another one,
# for so many seconds.
_CHOICES = 4
_AVOID_S = 5.0
# Longest wait for Serve's choice while replicas are known that run.
_SPARE_S = 0.3


class Client(Protocol[Request, Stream]):
    """A gRPC client of one replica."""

    @property
    def lost(self) -> bool:
        """Whether there was a connection and is none."""

    async def open(self, request: Request) -> Stream:
        """Open a session's stream."""

    def retire(self) -> None:
        """Close the channel once its last session has ended."""


class PinnedReplicas(Generic[Req, Str]):
    """Opens sessions on replicas of one deployment; a session stays with its address.

    choose returns the address of a replica; connect makes its client.

    A replica that is gone or full is passed over up to three times, and one that is gone is avoided
    for some seconds while there are others. One channel per address is shared by all sessions.
    Serve is asked for the next session's replica while this one runs: its answer takes longer than
    a short prompt.
    """

    def __init__(
        self,
        choose: Callable[[], Awaitable[str]],
        connect: Callable[[str], Client[Req, Str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._choices = Choices(choose, clock)
        self._connect, self._clock = connect, clock
        self._clients: dict[str, Client[Req, Str]] = {}
        # Until when an address is avoided.
        self._lost: dict[str, float] = {}
        self._turn = 0

    async def open(self, request: Req) -> Str:
        """Open the session on a replica; raise Unavailable or Overloaded when none takes it."""
        failure: Unavailable | Overloaded = Unavailable("no replica is running")
        for _ in range(_ATTEMPTS):
            address = await self._address()
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = self._connect(address)
            try:
                return await client.open(request)
            except (Unauthenticated, PermissionDenied) as error:
                # Ours to put right, and no fault of the client's.
                raise ForedraftError(f"a replica refuses this ingress: {error}") from None
            except Overloaded as error:
                failure = error
                self._choices.failed()
            except Unavailable as error:
                failure = error
                self._choices.failed()
                self._lost[address] = self._clock() + _AVOID_S
                # Sessions that run there may end there.
                if self._clients.get(address) is client:
                    del self._clients[address]
                client.retire()
        raise failure

    async def _address(self) -> str:
        """Return the address of Serve's choice, or of another replica if that one was just lost.

        Serve takes seconds where it asks a replica that stalls: it is not waited for where a
        replica is known that does not.
        """
        now = self._clock()
        self._lost = {address: until for address, until in self._lost.items() if until > now}
        spare = [address for address in self._clients if not self._is_lost(address)]
        hurry = bool(spare) and len(spare) < len(self._clients.keys() | self._lost.keys())
        try:
            async with asyncio.timeout(_SPARE_S if hurry else None):
                for _ in range(_CHOICES):
                    address = await self._choices.take()
                    if not self._is_lost(address):
                        return address
                    self._choices.failed()
        except (TimeoutError, Unavailable):
            if not spare:
                raise
        self._turn += 1
        return spare[self._turn % len(spare)] if spare else address

    def _is_lost(self, address: str) -> bool:
        client = self._clients.get(address)
        return address in self._lost or (client is not None and client.lost)
