"""The port through which large tensors travel beside messages, and its default: in chunks.

A carrier keeps a tensor's bytes in a store that other processes read, and gives a reference in
exchange. The reference alone is then sent, and may be passed on by who cannot read it. A store is
named "<store>/<node>", where the node is the one that it is read from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from foredraft.errors import TensorLost


class Carrier(Protocol):
    """A store of tensors; made by the composition root and given to the services."""

    @property
    def store(self) -> str:
        """The store that this process reads, "" if none."""

    def pays(self, size: int, reader: str) -> bool:
        """Return whether a tensor of `size` bytes reaches the reader of a store sooner this way."""

    async def put(self, data: bytes) -> bytes | None:
        """Return a reference to data, which is kept until it is freed; None if there is no room."""

    async def get(self, reference: bytes, size: int) -> bytes:
        """Return the `size` bytes of a reference; raise TensorLost if they cannot be had."""

    def free(self, references: Iterable[bytes]) -> None:
        """Keep these tensors no longer; never raises."""


class InChunks:
    """No store: every tensor travels in the messages' own stream."""

    store = ""

    def pays(self, size: int, reader: str) -> bool:
        """Return False."""
        return False

    async def put(self, data: bytes) -> bytes | None:
        """Return None."""
        return None

    async def get(self, reference: bytes, size: int) -> bytes:
        """Raise TensorLost."""
        raise TensorLost("this service reads no tensor store")

    def free(self, references: Iterable[bytes]) -> None:
        """Do nothing."""


IN_CHUNKS = InChunks()


def is_same_store(one: str, other: str) -> bool:
    """Return whether references to one store can be read where the other is."""
    return bool(one) and one.partition("/")[0] == other.partition("/")[0]


def is_same_node(one: str, other: str) -> bool:
    """Return whether both names are of one store, read from one node."""
    return bool(one) and one == other
