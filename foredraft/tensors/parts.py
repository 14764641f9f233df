"""A tensor in parts: bytes in chunks, and references to bytes that a carrier holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foredraft import limits
from foredraft.errors import InvalidRequest
from foredraft.tensors.carrier import Carrier
from foredraft.types import Part, Stored


def length(parts: Sequence[Part]) -> int:
    """Return the number of bytes of all parts together."""
    return sum(part.size if isinstance(part, Stored) else len(part) for part in parts)


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the chunks that go before a message with a tensor, and what it carries itself."""
    step = limits.MAX_TENSOR_CHUNK
    chunks = [data[at : at + step] for at in range(0, len(data) - step, step)]
    return chunks, data[len(chunks) * step :]


def chunked(parts: Sequence[Part]) -> Iterator[Part]:
    """Yield the parts, bytes in chunks."""
    for part in parts:
        if isinstance(part, Stored):
            yield part
        else:
            chunks, last = split(part)
            yield from (*chunks, last)


def in_one(parts: Sequence[Part]) -> tuple[tuple[Part, ...], bytes]:
    """Return (), and all bytes, if no part is stored; else the parts, and no bytes."""
    data = [part for part in parts if not isinstance(part, Stored)]
    return ((), b"".join(data)) if len(data) == len(parts) else (tuple(parts), b"")


class Gathered:
    """A tensor's parts as they come, at most `most` bytes; `name` is the field that they make."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._parts: list[Part] = []
        self._size = 0

    def add(self, part: Part) -> None:
        """Take the next part; raise InvalidRequest naming the field if it is one too many."""
        stored = isinstance(part, Stored)
        self._size += (size := length((part,)))
        if not size or self._size > self._most or (size > limits.MAX_TENSOR_CHUNK and not stored):
            raise InvalidRequest(
                f"{self._name} come in chunks of 1 to {limits.MAX_TENSOR_CHUNK} bytes, "
                f"at most {self._most} in all",
                param=self._name,
            )
        self._parts.append(part)

    def end(self, data: bytes) -> tuple[Part, ...]:
        """Return all parts, the last of them that which the message itself carried."""
        if data:
            self.add(data)
        whole = tuple(self._parts)
        self._parts, self._size = [], 0
        return whole


async def read(carrier: Carrier, parts: Sequence[Part]) -> bytes:
    """Return the bytes of all parts; raise TensorLost if one cannot be had."""
    return b"".join(
        [
            await carrier.get(part.reference, part.size) if isinstance(part, Stored) else part
            for part in parts
        ]
    )


class Sender:
    """Sends the tensors of one stream to the reader of a store, each by the carrier that pays.

    What it stored is kept until `close`: a peer may pass references on and ask again.
    """

    def __init__(self, carrier: Carrier, reader: str) -> None:
        self._carrier, self._reader = carrier, reader
        self._stored: list[bytes] = []
        self._closed = False

    async def parts(self, data: bytes) -> tuple[list[Part], bytes]:
        """Return what goes before a message with this tensor, and what it carries itself."""
        if data and self._carrier.pays(len(data), self._reader):
            reference = await self._carrier.put(data)
            if reference is not None:
                self._stored.append(reference)
                if self._closed:
                    self.close()
                return [Stored(reference, len(data))], b""
        chunks, last = split(data)
        return list(chunks), last

    def close(self) -> None:
        """Free what was stored, and what is being stored now."""
        self._closed = True
        self._carrier.free(self._stored)
        self._stored = []
