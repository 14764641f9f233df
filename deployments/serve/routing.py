"""Ports over replicas that Ray Serve picks, once per session; then gRPC goes straight to them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

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
# Serve picks at random, for some seconds among lost ones, too: of two replicas, so many picks all
# but surely name both.
_PICKS = 16
_AVOID_S = 5.0


class Client(Protocol[Request, Stream]):
    """A gRPC client of one replica."""

    @property
    def num_sessions(self) -> int:
        """How many of its sessions are open."""

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
    for some seconds while there are others. Of two that Serve picks, the less used one is taken.
    One channel per address is shared by all sessions.
    """

    def __init__(
        self,
        choose: Callable[[], Awaitable[str]],
        connect: Callable[[str], Client[Req, Str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._choose, self._connect, self._clock = choose, connect, clock
        self._clients: dict[str, Client[Req, Str]] = {}
        # Until when an address is avoided.
        self._lost: dict[str, float] = {}

    async def open(self, request: Req) -> Str:
        """Open the session on a replica; raise Unavailable or Overloaded when none takes it."""
        failure: Unavailable | Overloaded = Unavailable("no replica is running")
        full: set[str] = set()
        for _ in range(_ATTEMPTS):
            address = await self._address(full)
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
                full.add(address)
            except Unavailable as error:
                failure = error
                self._avoid(address, client)
        raise failure

    async def _address(self, full: set[str]) -> str:
        """Return the address of a replica that is neither lost nor full, if Serve knows of one.

        Else of one that was lost longest ago.
        """
        for address, client in tuple(self._clients.items()):
            if client.lost:
                self._avoid(address, client)
        now = self._clock()
        self._lost = {address: until for address, until in self._lost.items() if until > now}
        picked: set[str] = set()
        for _ in range(_PICKS):
            address = await self._choose()
            if address not in full and address not in self._lost:
                return await self._less_used(address, full)
            picked.add(address)
        return min(picked, key=lambda each: (each in full, self._lost.get(each, now)))

    async def _less_used(self, address: str, full: set[str]) -> str:
        """Return the address, or another pick of Serve's where we have fewer open sessions.

        Serve sees none of them. Picks at random alone leave replicas unequally busy; the better one
        of two does not (Mitzenmacher, "The Power of Two Choices", 2001).
        """
        if self._clients.keys() <= {address}:
            return address
        other = await self._choose()
        if other in full or other in self._lost:
            return address
        return min(address, other, key=self._num_sessions)

    def _num_sessions(self, address: str) -> int:
        client = self._clients.get(address)
        return 0 if client is None else client.num_sessions

    def _avoid(self, address: str, client: Client[Req, Str]) -> None:
        """Leave a replica alone for a while, and connect anew after that."""
        self._lost[address] = self._clock() + _AVOID_S
        # Sessions that run there may end there.
        if self._clients.get(address) is client:
            del self._clients[address]
        client.retire()
