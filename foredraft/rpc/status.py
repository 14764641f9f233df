"""Errors as gRPC statuses, and back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from foredraft.errors import ForedraftError, Overloaded, Unavailable, from_status

# The trailing metadata's key of ForedraftError.param.
_PARAM = "foredraft-param"
# That of a google.rpc.Status, which clients look for.
_DETAILS = "grpc-status-details-bin"

# grpc's error for a message that was written while the stream ended.
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
    trailing: tuple[tuple[str, str | bytes], ...] = ()
    if error.param:
        trailing += ((_PARAM, error.param),)
    if isinstance(error, Overloaded | Unavailable):
        trailing += ((_DETAILS, _details(error)),)
    await context.abort(grpc.StatusCode[error.grpc_status], str(error), trailing)


def _details(error: Overloaded | Unavailable) -> bytes:
    """Return when to try again, as google.rpc.Status has it."""
    retry = RetryInfo()
    retry.retry_delay.FromSeconds(error.retry_after_s)
    status = Status(code=grpc.StatusCode[error.grpc_status].value[0], message=str(error))
    status.details.add().Pack(retry)
    return bytes(status.SerializeToString())


def error_of(
    code: grpc.StatusCode, details: str | None, trailing: Iterable[tuple[str, Any]] | None
) -> ForedraftError:
    """Return the error that an RPC's status stands for."""
    if code is grpc.StatusCode.CANCELLED or details == _WRITTEN_TOO_LATE:
        return Unavailable("the stream has ended")
    param = dict(trailing or ()).get(_PARAM)
    return from_status(code.name, details or code.name, None if param is None else str(param))
