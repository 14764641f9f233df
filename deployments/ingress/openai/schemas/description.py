"""Answers in the app's OpenAPI description."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from deployments.ingress.openai.schemas.answers import ChatChunk, Completion, StreamFailure

_REF = "#/components/schemas/{model}"
_MODE: JsonSchemaMode = "serialization"
# What a stream's events hold, by route.
_EVENTS: dict[str, tuple[type[BaseModel], ...]] = {
    "/v1/completions": (Completion, StreamFailure),
    "/v1/chat/completions": (ChatChunk, StreamFailure),
}


def answering(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the description of a route's 200 in this shape."""
    return {200: {"model": model, "description": model.__doc__}}


def install(app: FastAPI) -> None:
    """Add the events of streams to the app's description, which knows of whole answers alone."""
    whole = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = whole()
            for path, models in _EVENTS.items():
                names = [{"$ref": _REF.format(model=model.__name__)} for model in models]
                answers = found["paths"][path]["post"]["responses"]["200"]["content"]
                answers["text/event-stream"] = {"schema": {"anyOf": names}}
            every = [(model, _MODE) for models in _EVENTS.values() for model in models]
            _, definitions = models_json_schema(every, ref_template=_REF)
            found["components"]["schemas"] |= definitions["$defs"]
        return whole()

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's own way to extend it
