"""The routes of the playground: a page of plain files, and the button that kills a drafter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from deployments.ingress.doors.guard import is_foreign
from deployments.ingress.playground.config import PlaygroundConfig

_PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Nothing but the server's own files, and no page around this one.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def install(
    app: FastAPI,
    config: PlaygroundConfig,
    converses: bool,
    fills: bool,
    kill_drafter: Callable[[], Awaitable[None]],
) -> None:
    """Add the routes that are enabled.

    converses is whether the model has a chat template, fills whether it fills holes; kill_drafter
    ends one drafter's process.
    """
    if not config.enabled:
        return
    files = {path.name: path.read_bytes() for path in _PAGE.iterdir() if path.suffix in _TYPES}

    def served(name: str) -> Response:
        kind = f"{_TYPES[Path(name).suffix]}; charset=utf-8"
        return Response(files[name], media_type=kind, headers=_HEADERS)

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        if not request.scope["path"].endswith("/"):
            # The page's own links are relative to a folder.
            return RedirectResponse(request.scope["path"] + "/")
        return served("index.html")

    @app.get("/playground/options", include_in_schema=False)
    async def options() -> dict[str, Any]:
        return {"chat": converses, "infill": fills, "kill_drafter": config.kill_drafter}

    @app.get("/playground/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "Not Found")
        return served(name)

    if config.kill_drafter:

        @app.post("/playground/kill-drafter", include_in_schema=False)
        async def kill(request: Request) -> dict[str, Any]:
            if is_foreign(request.scope):
                raise HTTPException(403, "only this server's own page may")
            await kill_drafter()
            return {"killed": True}
