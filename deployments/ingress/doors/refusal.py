"""An answer of the doors themselves: the API's error body."""

from __future__ import annotations

import json

from starlette.types import Send

from deployments.ingress.openai.errors import error_body


async def refuse(
    send: Send, status: int, kind: str, message: str, *headers: tuple[bytes, bytes]
) -> None:
    """Answer a request with an error."""
    body = json.dumps(error_body(message, kind, status)).encode()
    all_headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})
