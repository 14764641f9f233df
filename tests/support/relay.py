"""A TCP relay between a gRPC client and its server, that counts pings and can stall."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_PREFACE = 24
_HEADER = 9
_PING, _ACK = 6, 1


class Relay:
    """Passes bytes both ways; pings are those of the client, by HTTP/2 frame (RFC 9113, 6.7)."""

    def __init__(self) -> None:
        self.port = 0
        self.pings = 0
        self._pinged = asyncio.Condition()
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def stall(self) -> None:
        """Pass nothing any more, and close nothing."""
        self._open.clear()

    async def pinged(self, times: int) -> None:
        """Return once the client has sent so many pings more."""
        async with self._pinged:
            first = self.pings
            await self._pinged.wait_for(lambda: self.pings >= first + times)

    async def connect(self, server_port: int, client: asyncio.StreamReader, back: object) -> None:
        """Join a client's connection to a new one to the server."""
        assert isinstance(back, asyncio.StreamWriter)
        server, forth = await asyncio.open_connection("127.0.0.1", server_port)
        self._writers += [forth, back]
        for work in (self._frames(client, forth), self._bytes(server, back)):
            task = asyncio.create_task(work)
            self._tasks.add(task)

    async def end(self) -> None:
        """End every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _bytes(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self._open.wait()
                target.write(data)
        finally:
            target.close()

    async def _frames(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            target.write(await source.readexactly(_PREFACE))
            while True:
                header = await source.readexactly(_HEADER)
                body = await source.readexactly(int.from_bytes(header[:3], "big"))
                await self._open.wait()
                target.write(header + body)
                if header[3] == _PING and not header[4] & _ACK:
                    async with self._pinged:
                        self.pings += 1
                        self._pinged.notify_all()
        except asyncio.IncompleteReadError:
            pass
        finally:
            target.close()


@asynccontextmanager
async def relayed(server_port: int) -> AsyncIterator[Relay]:
    """Relay a port of this machine to the server's."""
    relay = Relay()

    async def connect(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        await relay.connect(server_port, client, back)

    listening = await asyncio.start_server(connect, "127.0.0.1", 0)
    relay.port = listening.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listening.close()
        await relay.end()
