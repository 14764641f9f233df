"""Every failure as the OpenAI error body: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from foredraft.errors import ForedraftError, InvalidRequest, Overloaded, Unavailable

_log = logging.getLogger(__name__)
_KINDS = {
    400: "invalid_request_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
}
# What pydantic names on a field's path that is none of a client's: the types that a value may have,
# and that a key is meant.
_NO_FIELD = re.compile(
    r"(str|int|float|bool|dict|list|tuple|constrained|literal|function)\b.*|\[key\]"
)


class Failure(BaseModel):
    """What went wrong; param names the field, if it is one's fault."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorBody(BaseModel):
    """The body of every failure."""

    error: Failure


# What every route may answer, for its description.
RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request cannot be served as it is."},
    "5XX": {"model": ErrorBody, "description": "The server cannot serve it now."},
}


class ModelNotFound(InvalidRequest):
    """The request names a model that is not served."""

    http_code = 404
    kind = "not_found_error"

    def __init__(self, name: str) -> None:
        super().__init__(f"model {name[:64]!r} does not exist", param="model")


def error_body(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    """Return the body that OpenAI clients parse."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def body_of(error: ForedraftError) -> dict[str, Any]:
    """Return the body of one of our own errors; it also stands inside a stream."""
    return error_body(str(error), error.kind, error.http_code, error.param)


def install(app: FastAPI) -> None:
    """Register handlers so that no other error format can leave the app."""

    @app.exception_handler(ForedraftError)
    async def ours(_: Request, error: ForedraftError) -> JSONResponse:
        headers = None
        if isinstance(error, Overloaded | Unavailable):
            headers = {"retry-after": str(error.retry_after_s)}
        return JSONResponse(body_of(error), status_code=error.http_code, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        parts = (str(part) for part in first["loc"] if part != "body")
        path = [part for part in parts if not _NO_FIELD.fullmatch(part)]
        sent = request.headers.get("content-type", "")
        if not path and first["type"] == "model_attributes_type" and "json" not in sent:
            message = f"content-type must be application/json, not {sent[:64]!r}"
            return JSONResponse(error_body(message, "invalid_request_error", 415), 415)
        if first["type"] == "json_invalid":
            message, param = "the body is not valid JSON", None
        else:
            param = ".".join(path) or None
            message = f"{param}: {first['msg']}" if param else str(first["msg"])
        return JSONResponse(error_body(message, "invalid_request_error", 400, param), 400)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        kind = _KINDS.get(error.status_code, "server_error")
        body = error_body(str(error.detail), kind, error.status_code)
        return JSONResponse(body, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        _log.error("unexpected error", exc_info=error)
        return JSONResponse(error_body("internal error", "server_error", 500), 500)
