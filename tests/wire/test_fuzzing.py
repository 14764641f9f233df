"""Bytes and messages of all kinds at every gRPC port: a status of the contract, and the log quiet.

Messages are made field by field after the protocol's descriptors, so that most get past the parser;
others are bytes. Whatever comes, the service goes on to serve the next session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foredraft.rpc import options
from tests.support.examples import examples
from tests.wire.test_rpc import Service, every, serving

# What a caller's own fault, or the lack of room, may come to.
ALLOWED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
_WITHIN_S = 2.0
_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 9),
}


def value(field: Any, depth: int) -> st.SearchStrategy[Any]:
    """Values of one field, small ones as often as any."""
    if field.message_type is not None:
        return message(field.message_type._concrete_class, depth + 1)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=40)
        named = st.sampled_from(["", "coupled", "tree", "regex", "a{2}", "s", "127.0.0.1:1"])
        return named | st.text(max_size=20)
    small = st.integers(0, 9)
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return st.sampled_from([0.0, 0.5, 1.0]) | _NUMBERS[field.cpp_type]
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    return small | _NUMBERS[field.cpp_type]


@st.composite
def message(draw: st.DrawFn, kind: Any, depth: int = 0) -> Message:
    """A message of a kind, each of its fields there or not."""
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if depth > 3 or not draw(st.booleans()):
            continue
        if field.is_repeated:
            found = draw(st.lists(value(field, depth), max_size=4))
            getattr(made, field.name).extend(found)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(value(field, depth)))
        else:
            setattr(made, field.name, draw(value(field, depth)))
    return made


def raw(service: Service) -> st.SearchStrategy[bytes]:
    """Bytes, or a message of the service's as bytes, cut or with a byte of another value."""
    whole = message(service.request).map(lambda it: it.SerializeToString())
    cut = st.tuples(whole, st.integers(0, 60)).map(lambda it: it[0][: it[1]])
    bent = st.tuples(whole, st.integers(0, 60), st.integers(0, 255)).map(
        lambda it: it[0][: it[1]] + bytes([it[2]]) + it[0][it[1] + 1 :]
    )
    return st.binary(max_size=60) | whole | cut | bent


@every
def test_no_bytes_do_more_than_be_refused(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Streams of up to three such messages, half of them behind a good open."""
    caplog.set_level(logging.WARNING)
    with asyncio.Runner() as runner:
        under_test = serving(service, open_timeout_s=1.0, idle_ttl_s=1.0)
        server = runner.run(under_test.__aenter__())
        channel = runner.run(_opened(f"127.0.0.1:{server.port}"))
        good = _opening(service)

        @settings(examples(150), suppress_health_check=list(HealthCheck))
        @given(opens=st.booleans(), sent=st.lists(raw(service), min_size=1, max_size=3))
        def fuzz(opens: bool, sent: list[bytes]) -> None:
            status = runner.run(_talk(channel, service, [good] * opens + sent))
            assert status in ALLOWED, status

        fuzz()
        assert runner.run(_talk(channel, service, [good])) is grpc.StatusCode.OK
        runner.run(_freed(server.stats))
        runner.run(channel.close())
        runner.run(under_test.__aexit__(None, None, None))
    assert not [record for record in caplog.records if record.exc_info]


async def _opened(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=options.CHANNEL)


def _opening(service: Service) -> bytes:
    message: bytes = service.request(open=service.encoded(service.opening())).SerializeToString()
    return message


async def _talk(channel: grpc.aio.Channel, service: Service, sent: list[bytes]) -> Any:
    """Send messages, then no more; return the status that the stream ends with, in time."""
    call = channel.stream_stream(service.method)()
    try:
        async with asyncio.timeout(_WITHIN_S):
            for data in sent:
                await call.write(data)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
    finally:
        call.cancel()
    # What this end's own library says where it wrote while the stream was ended.
    late = (await call.details()) == "Internal error from Core"
    return grpc.StatusCode.OK if late else await call.code()


async def _freed(stats: Callable[[], dict[str, float]]) -> None:
    async with asyncio.timeout(_WITHIN_S):
        while stats()["sessions"] or stats()["streams"]:
            await asyncio.sleep(0.01)
