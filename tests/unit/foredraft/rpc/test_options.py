"""gRPC takes any option and ignores those that it does not know: each must be one of its own."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from grpc._cython import cygrpc

from foredraft import limits
from foredraft.rpc import options


def known(name: str) -> bool:
    """Whether grpc's own code has the option: its names are C strings in the library."""
    with (
        Path(cygrpc.__file__).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library,
    ):
        return library.find(name.encode() + b"\0") >= 0


@pytest.mark.parametrize("name", sorted(dict((*options.SERVER, *options.CHANNEL))))
def test_every_option_is_one_that_grpc_knows(name: str) -> None:
    assert known(name)


def test_a_misspelt_option_is_not_known() -> None:
    assert not known("grpc.http2.min_recv_ping_interval_without_data_ms")


@pytest.mark.parametrize("given", [options.SERVER, options.CHANNEL])
def test_both_ends_agree(given: options.Options) -> None:
    values = dict(given)
    assert values["grpc.keepalive_time_ms"] + values["grpc.http2.ping_timeout_ms"] <= 2_000
    assert values["grpc.keepalive_timeout_ms"] == values["grpc.http2.ping_timeout_ms"]
    key = cygrpc.ChannelArgKey.max_receive_message_length.decode()
    assert values[key] == limits.MAX_MESSAGE_BYTES
    assert values["grpc.max_send_message_length"] == limits.MAX_MESSAGE_BYTES


def test_a_server_allows_what_its_clients_send() -> None:
    allowed = dict(options.SERVER)["grpc.http2.min_ping_interval_without_data_ms"]
    assert allowed < dict(options.CHANNEL)["grpc.keepalive_time_ms"]
