"""The HTTP routes, over whatever answers completions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from deployments.ingress.openai import errors
from deployments.ingress.openai.api import CompletionRequest, ModelNotFound
from deployments.ingress.openai.completions import Completions

MAX_BODY_BYTES = 4 << 20


def application(
    completions: Completions, health: Callable[[], Awaitable[dict[str, Any] | None]]
) -> FastAPI:
    """Return the app; health describes what serves, None while nothing does."""
    app = FastAPI(title="Foredraft", max_body_size=MAX_BODY_BYTES)
    errors.install(app)
    described = {
        "id": completions.name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "foredraft",
    }

    @app.post("/v1/completions")
    async def complete(request: CompletionRequest) -> Response:
        return await completions.answer(request)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        if name != completions.name:
            raise ModelNotFound(name)
        return described

    @app.get("/health")
    async def state() -> JSONResponse:
        """200 when a verifier answers; a missing drafter only means plain decoding."""
        found = await health()
        if found is None:
            body = errors.error_body("Loading model", "unavailable_error", 503)
            return JSONResponse(body, 503, headers={"retry-after": "1"})
        return JSONResponse({"status": "ok", **found})

    return app
