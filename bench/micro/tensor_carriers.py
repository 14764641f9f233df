"""Tensors in gRPC chunks and through Ray's object store: python -m bench.micro.tensor_carriers.

A local cluster of two nodes, both on this machine. A tensor goes from this process to a reader, on
the same node and on the other one, directly and through a relay that only passes parts on, as the
orchestrator does; the time ends when this process hears that the reader has all bytes. Both
carriers in turn, by the product's own code. A Markdown table: medians in ms, and of the ratios of
pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import grpc

from deployments.pools import TensorConfig
from deployments.serve.environment import prepare_environment
from foredraft import limits
from foredraft.codec.common import part_from_pb, part_to_pb
from foredraft.rpc import options
from foredraft.tensors.carrier import IN_CHUNKS, Carrier
from foredraft.tensors.parts import Gathered, Sender, read
from foredraft.v1 import common_pb2

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
ALWAYS = TensorConfig(same_node_mib=0, other_node_mib=0)
HEAD = ("chunks, ms", "store, ms", "store is", "relayed: chunks", "store", "store is")
_METHOD = "/bench.Tensors/Send"
_STORE_BYTES = 1 << 30
_SERIALIZERS: dict[str, Any] = {
    "request_serializer": common_pb2.FeatureChunk.SerializeToString,
    "response_deserializer": common_pb2.FeatureChunk.FromString,
}


class Peer:
    """An actor with a gRPC server: it reads tensors, or passes them on to another one."""

    async def start(self, host: str, reader: str = "") -> tuple[str, str]:
        """Return the address that it listens on, and the store that it reads."""
        from deployments.serve.tensors import ObjectStore

        self._carrier = ObjectStore(ALWAYS)
        self._next = stream_to(reader) if reader else None
        self._server = grpc.aio.server(options=options.SERVER)
        handler = grpc.stream_stream_rpc_method_handler(
            self._pass_on if reader else self._read,
            request_deserializer=common_pb2.FeatureChunk.FromString,
            response_serializer=common_pb2.FeatureChunk.SerializeToString,
        )
        _, service, method = _METHOD.split("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        port = self._server.add_insecure_port(f"{host}:0")
        await self._server.start()
        return f"{host}:{port}", self._carrier.store

    async def _read(self, _: Any, context: Any) -> None:
        gathered = Gathered("features", limits.MAX_FEATURES)
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.size or message.data:
                gathered.add(part_from_pb(message))
                continue
            data = await read(self._carrier, gathered.end(b""))
            await context.write(common_pb2.FeatureChunk(size=len(data)))

    async def _pass_on(self, _: Any, context: Any) -> None:
        assert self._next is not None
        while (message := await context.read()) is not grpc.aio.EOF:
            await self._next.write(message)
            if not (message.size or message.data):
                await context.write(await self._next.read())


def stream_to(address: str) -> Any:
    """Return a stream to a peer; it lives as long as its channel, which nobody closes."""
    channel = grpc.aio.insecure_channel(address, options=options.CHANNEL)
    return channel.stream_stream(_METHOD, **_SERIALIZERS)()


async def sent(stream: Any, carrier: Carrier, store: str, data: bytes) -> float:
    """Return the ms after which the peer has the tensor; an empty message ends it."""
    began = time.perf_counter()
    sender = Sender(carrier, store)
    parts, last = await sender.parts(data)
    for part in (*parts, last) if last else parts:
        await stream.write(part_to_pb(part))
    await stream.write(common_pb2.FeatureChunk())
    answer = await stream.read()
    assert answer.size == len(data)
    sender.close()
    return 1e3 * (time.perf_counter() - began)


async def measured(
    address: str, store: str, carrier: Carrier, size: int, count: int
) -> tuple[float, float, float]:
    """Return the medians in ms of chunks and of the store, and of the ratios of their pairs."""
    stream, data = stream_to(address), os.urandom(size)
    ways: tuple[Carrier, ...] = (IN_CHUNKS, carrier)
    for way in ways:
        await sent(stream, way, store, data)
    times: list[list[float]] = [[], []]
    for turn in range(count):
        for side in (0, 1) if turn % 2 else (1, 0):
            times[side].append(await sent(stream, ways[side], store, data))
    stream.cancel()
    ratios = [chunks / stored for chunks, stored in zip(*times, strict=True)]
    return median(times[0]), median(times[1]), median(ratios)


@asynccontextmanager
async def peers(ray: Any, node: str, here: str) -> AsyncIterator[tuple[list[str], str]]:
    """Start a reader on a node, and a relay to it; yield their addresses, and the store."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    host = ray.util.get_node_ip_address()
    made: Any = ray.remote(Peer)
    reader, relay = (
        made.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(at, soft=False)
        ).remote()
        for at in (node, here)
    )
    address, store = await reader.start.remote(host)
    through, _ = await relay.start.remote(host, address)
    yield [address, through], store
    for peer in (relay, reader):
        ray.kill(peer)


def row(size: int, found: Sequence[tuple[float, float, float]]) -> str:
    """Return a table's row: chunks, store and ratio, directly and relayed."""
    label = f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
    cells = [f"{chunks:.1f} | {stored:.1f} | {ratio:.2f}x" for chunks, stored, ratio in found]
    return f"| {label} | {' | '.join(cells)} |"


async def run(sizes: Sequence[int], most: int) -> None:
    """Print a table for each node."""
    import ray

    from deployments.serve.tensors import ObjectStore

    here = ray.get_runtime_context().get_node_id()
    other = next(node["NodeID"] for node in ray.nodes() if node["NodeID"] != here)
    carrier = ObjectStore(ALWAYS)
    for name, node in (("same node", here), ("two nodes", other)):
        print(f"\n| {name} | {' | '.join(HEAD)} |\n|{'---|' * 7}")  # noqa: T201
        async with peers(ray, node, here) as (addresses, store):
            for size in sizes:
                count = max(8, min(most, most * 4 * MIB // size))
                found = [await measured(at, store, carrier, size, count) for at in addresses]
                print(row(size, found), flush=True)  # noqa: T201


def main() -> int:
    """Parse the arguments, start the nodes and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=40, help="most tensors of each size")
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in KiB")
    given = arguments.parse_args()
    prepare_environment()
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": _STORE_BYTES}
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": False}
    )
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        asyncio.run(run([size * KIB for size in given.sizes], given.count))
    finally:
        ray.shutdown()
        cluster.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
