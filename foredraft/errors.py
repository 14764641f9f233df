"""The one error tree. Each class knows its gRPC status and its HTTP code.

ForedraftError
    InvalidRequest      a field is missing or out of range; names the field
        ConfigError     the same, in a configuration file or on the command line
    PrefixMismatch      a message was computed from another prefix; re-open with the full prefix
    Unauthenticated     no valid key was presented
    PermissionDenied    the caller is known, and may not do this
    Overloaded          no room now; try again after retry_after_s
    Unavailable         the peer is gone, draining or still loading
    DeadlineExceeded    the answer did not come in time
    CorruptModelOutput  the model's numbers are not finite, or a peer broke the contract
    TensorLost          what a reference points to cannot be had; send it again
    WeightsError        a model directory cannot be used as it is
"""

from __future__ import annotations

from collections.abc import Sequence


class ForedraftError(Exception):
    """Anything that goes wrong by name. The message is shown to users: no paths, no secrets."""

    grpc_status = "INTERNAL"
    http_code = 500
    kind = "server_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidRequest(ForedraftError):
    """A field of a request is missing or out of range; `param` names it."""

    grpc_status = "INVALID_ARGUMENT"
    http_code = 400
    kind = "invalid_request_error"


class ConfigError(InvalidRequest):
    """A configuration value cannot be used; `param` is its path in the configuration."""


class PrefixMismatch(ForedraftError):
    """A message names another prefix than the receiver holds."""

    grpc_status = "FAILED_PRECONDITION"


class Unauthenticated(ForedraftError):
    """No valid key was presented."""

    grpc_status = "UNAUTHENTICATED"
    http_code = 401
    kind = "authentication_error"


class PermissionDenied(ForedraftError):
    """The caller is known, and may not do this."""

    grpc_status = "PERMISSION_DENIED"
    http_code = 403
    kind = "permission_error"


class Overloaded(ForedraftError):
    """There is no room for the request now; there may be after retry_after_s seconds."""

    grpc_status = "RESOURCE_EXHAUSTED"
    http_code = 429
    kind = "rate_limit_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int = 1) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class Unavailable(ForedraftError):
    """The peer is gone, draining or still loading."""

    grpc_status = "UNAVAILABLE"
    http_code = 503
    kind = "unavailable_error"
    retry_after_s = 1


class DeadlineExceeded(ForedraftError):
    """The answer did not come in time."""

    grpc_status = "DEADLINE_EXCEEDED"
    http_code = 504
    kind = "timeout_error"


class CorruptModelOutput(ForedraftError):
    """Logits are not finite, or a peer answered something that the contract excludes."""

    grpc_status = "DATA_LOSS"


class TensorLost(ForedraftError):
    """A tensor that a message names by reference is gone, or the reference is not readable here."""

    grpc_status = "NOT_FOUND"


class WeightsError(ForedraftError):
    """A model directory is incomplete, altered or of an unsupported kind."""


_SENT: Sequence[type[ForedraftError]] = (
    InvalidRequest,
    PrefixMismatch,
    Unauthenticated,
    PermissionDenied,
    Overloaded,
    Unavailable,
    DeadlineExceeded,
    CorruptModelOutput,
    TensorLost,
)
_BY_STATUS = {cls.grpc_status: cls for cls in _SENT}
# Those that a client can tell apart: the others have the root's kind.
_BY_KIND = {cls.kind: cls for cls in _SENT if cls.kind != ForedraftError.kind}


def from_status(status: str, message: str, param: str | None = None) -> ForedraftError:
    """Return the error that a gRPC status name stands for; an unknown one is the tree's root."""
    return _BY_STATUS.get(status, ForedraftError)(message, param=param)


def from_kind(kind: str, message: str, param: str | None = None) -> ForedraftError:
    """Return the error that an answer's type stands for; an unknown one is the tree's root."""
    return _BY_KIND.get(kind, ForedraftError)(message, param=param)
