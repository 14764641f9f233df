"""The doors of an app: request ids outermost, then origins, then keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from deployments.ingress.doors.guard import Guard
from deployments.ingress.doors.keys import Key
from deployments.ingress.doors.request_ids import RequestIds


def install(
    app: FastAPI, keys: Sequence[Key], origins: Sequence[str], clock: Callable[[], float]
) -> None:
    """Put the app behind its doors.

    Without keys everybody may enter; origins are those whose pages a browser lets call.
    """
    if keys:
        app.add_middleware(Guard, keys=keys, clock=clock)
    if origins:
        # Outside the guard: a browser asks whether it may before it sends the key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(RequestIds, clock=clock)
