"""The doors of an app: origins outermost, then keys."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from deployments.ingress.doors.admission import Admission
from deployments.ingress.doors.guard import Guard


def install(app: FastAPI, admission: Admission, origins: Sequence[str]) -> None:
    """Put the app behind its doors; origins are those whose pages a browser lets call."""
    if admission.asks:
        app.add_middleware(Guard, admission=admission)
    if origins:
        # Outside the guard: a browser asks whether it may before it sends the key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after"],
        )
