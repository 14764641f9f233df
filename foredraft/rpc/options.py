"""gRPC's options, for both ends of every stream."""

from __future__ import annotations

from foredraft import limits

Options = tuple[tuple[str, int], ...]

# A peer that stalls is noticed after their sum: 1.4 s. gRPC's own threads answer pings, so a busy
# event loop is no stall.
KEEPALIVE_MS = 400
PING_TIMEOUT_MS = 1_000


def channel_options(keepalive_ms: int, timeout_ms: int) -> Options:
    """Return the options of a client: a ping every keepalive_ms, lost after timeout_ms."""
    return (
        *_both_ends(keepalive_ms, timeout_ms),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    )


def server_options(keepalive_ms: int, timeout_ms: int, shared: bool = False) -> Options:
    """Return the options of a server, whose clients ping every keepalive_ms, too.

    Unless its port is shared, a second server on it is an error.
    """
    return (
        *_both_ends(keepalive_ms, timeout_ms),
        # By default a server ends connections with more than one ping in five minutes.
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive_ms // 2),
        ("grpc.so_reuseport", int(shared)),
    )


def _both_ends(keepalive_ms: int, timeout_ms: int) -> Options:
    return (
        ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        # By default a ping is waited for for a minute, whatever keepalive_timeout_ms is.
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )


# What is on the other side of the ingress may be far away.
_DOOR_KEEPALIVE_MS = 10_000
_DOOR_TIMEOUT_MS = 5_000

CHANNEL = channel_options(KEEPALIVE_MS, PING_TIMEOUT_MS)
SERVER = server_options(KEEPALIVE_MS, PING_TIMEOUT_MS)
DOOR = server_options(_DOOR_KEEPALIVE_MS, _DOOR_TIMEOUT_MS, shared=True)
