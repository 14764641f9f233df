"""Errors as gRPC statuses, and back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from foredraft.errors import ForedraftError, Unavailable, from_status

# The trailing metadata's key of ForedraftError.param.
_PARAM = "foredraft-param"

# What grpc says of a message that was written while the stream ended.
_WRITTEN_TOO_LATE = "Internal error from Core"

log = logging.getLogger(__name__)


@asynccontextmanager
async def errors_as_status(
    context: grpc.aio.ServicerContext[Any, Any], service: str
) -> AsyncIterator[None]:
    """End the RPC with the status of an error raised inside; an unknown one is INTERNAL."""
    try:
        yield
    except ForedraftError as error:
        await _abort(context, error)
    except grpc.aio.BaseError as error:
        log.debug("the peer left before it was answered: %s", error)
    except Exception:
        log.exception("a session of the %s failed", service)
        await _abort(context, ForedraftError(f"the {service} failed"))


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: ForedraftError) -> None:
    trailing = ((_PARAM, error.param),) if error.param else ()
    await context.abort(grpc.StatusCode[error.grpc_status], str(error), trailing)


def error_of(
    code: grpc.StatusCode, details: str | None, trailing: Iterable[tuple[str, Any]] | None
) -> ForedraftError:
    """Return the error that an RPC's status stands for."""
    if code is grpc.StatusCode.CANCELLED or details == _WRITTEN_TOO_LATE:
        return Unavailable("the stream has ended")
    param = dict(trailing or ()).get(_PARAM)
    return from_status(code.name, details or code.name, None if param is None else str(param))
