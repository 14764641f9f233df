"""Ports over Ray Serve: Serve picks a replica once per session, then gRPC goes straight to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from deployments.serve.choices import Choices
from deployments.serve.platform import choose_replica
from foredraft.errors import Overloaded, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ray.serve.handle import DeploymentHandle

Request = TypeVar("Request", contravariant=True)
Stream = TypeVar("Stream", covariant=True)
Req = TypeVar("Req")
Str = TypeVar("Str")

_CHOOSE_TIMEOUT_S = 2.0
_ATTEMPTS = 3


class Client(Protocol[Request, Stream]):
    """A gRPC client of one replica."""

    async def open(self, request: Request) -> Stream:
        """Open a session's stream."""

    def retire(self) -> None:
        """Close the channel once its last session has ended."""


class PinnedReplicas(Generic[Req, Str]):
    """Opens sessions on replicas of one deployment; a session stays with its address.

    A replica that is gone or full is passed over up to three times. One channel per address is
    shared by all sessions. Serve is asked for the next session's replica while this one runs: its
    answer takes longer than a short prompt.
    """

    def __init__(
        self, handle: DeploymentHandle[Any], connect: Callable[[str], Client[Req, Str]]
    ) -> None:
        self._handle = handle
        self._choices = Choices(self._choose, time.monotonic)
        self._connect = connect
        self._clients: dict[str, Client[Req, Str]] = {}

    async def open(self, request: Req) -> Str:
        """Open the session on a replica; raise Unavailable or Overloaded when none takes it."""
        failure: Unavailable | Overloaded = Unavailable("no replica is running")
        for _ in range(_ATTEMPTS):
            address = await self._choices.take()
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = self._connect(address)
            try:
                return await client.open(request)
            except Overloaded as error:
                failure = error
                self._choices.failed()
            except Unavailable as error:
                failure = error
                self._choices.failed()
                # Sessions that run there may end there.
                if self._clients.get(address) is client:
                    del self._clients[address]
                client.retire()
        raise failure

    async def _choose(self) -> str:
        return str((await choose_replica(self._handle, _CHOOSE_TIMEOUT_S))["grpc"])
