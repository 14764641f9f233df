"""A running server, as the commands see it: JSON over HTTP, with a key if it asks for one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, NamedTuple

import aiohttp
import typer

from foredraft.client import failure
from foredraft.errors import ForedraftError, Unavailable

URL = "http://127.0.0.1:8000"
UrlArgument = Annotated[str, typer.Argument(help="Where the server answers.")]
KeyOption = Annotated[
    str,
    typer.Option(
        envvar="FOREDRAFT_API_KEY", help="An API key, if the server asks for one.", show_envvar=True
    ),
]
_TIMEOUT = aiohttp.ClientTimeout(total=600, connect=10)


class Reply(NamedTuple):
    """An HTTP status, and the JSON body, None where it is not JSON."""

    status: int
    body: Any

    @property
    def failure(self) -> ForedraftError:
        """The body's error, else one that names the status."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        if isinstance(error, dict) and error.get("message"):
            return failure(error)
        return ForedraftError(f"HTTP {self.status}")

    @property
    def error(self) -> str:
        """The failure's message."""
        return str(self.failure)


class Server:
    """Requests to one server; use it as an async context manager.

    All methods raise Unavailable where nobody answers. A certificate of one's own is trusted by
    the variable SSL_CERT_FILE.
    """

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Server:
        self._http = aiohttp.ClientSession(headers=self._headers, timeout=_TIMEOUT)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def get(self, path: str) -> Reply:
        """Return what a GET answers."""
        return await self._reply("GET", path)

    async def post(self, path: str, body: dict[str, Any]) -> Reply:
        """Return what a POST of JSON answers."""
        return await self._reply("POST", path, body)

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the chunks of a streamed answer; raise the error that it holds instead."""
        try:
            async with self._http.post(self.url + path, json={**body, "stream": True}) as answer:
                if answer.status != 200:
                    raise Reply(answer.status, await _json(answer)).failure
                async for line in answer.content:
                    if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                        chunk = json.loads(line[6:])
                        if "error" in chunk:
                            raise Reply(200, chunk).failure
                        yield chunk
        except aiohttp.ClientError as error:
            raise Unavailable(f"no answer from {self.url}: {error}") from None

    async def _reply(self, method: str, path: str, body: dict[str, Any] | None = None) -> Reply:
        try:
            async with self._http.request(method, self.url + path, json=body) as answer:
                return Reply(answer.status, await _json(answer))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Unavailable(f"no answer from {self.url}: {error}") from None


async def _json(answer: aiohttp.ClientResponse) -> Any:
    try:
        return await answer.json(content_type=None)
    except ValueError:
        return None
