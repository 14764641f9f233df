"""An answer of the doors themselves: the API's error body."""

from __future__ import annotations

import json

from starlette.types import Send

from deployments.ingress.openai.errors import body_of
from foredraft.errors import ForedraftError


async def refuse(send: Send, error: ForedraftError, *headers: tuple[bytes, bytes]) -> None:
    """Answer a request with an error."""
    body = json.dumps(body_of(error)).encode()
    all_headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    start = {"type": "http.response.start", "status": error.http_code, "headers": all_headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
