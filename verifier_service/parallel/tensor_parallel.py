"""One model over several ranks: each loads its shard, keeps its heads' KV and runs the same steps.

The layers are cut by the model's own tp_plan (transformers.distributed). Rank 0 has the engine
and sends the others each step, as integers; block tables are the same on every rank. Of the logits,
gathered by the plan, rank 0 alone makes use: a token is chosen once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from foredraft.errors import Unavailable
from verifier_service.models.paged import PagedModel
from verifier_service.models.port import Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from foredraft.types import ModelInfo
    from verifier_service.kv.block_pool import BlockPool

# Within a step all ranks compute; between two, rank 0 may have nothing to do for long. A rank that
# dies is noticed at once either way: its connections close.
_STEP_TIMEOUT = timedelta(seconds=60)
_IDLE_TIMEOUT = timedelta(days=365)
_JOIN_TIMEOUT = timedelta(seconds=120)

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A rank's place among `world` ranks that meet at an address, host:port."""

    rank: int
    world: int
    address: str


class Meeting:
    """Where the ranks find each other; rank 0 makes it, on a free port of a host."""

    def __init__(self, host: str, world: int) -> None:
        self._store = TCPStore(
            host, 0, world, is_master=True, timeout=_JOIN_TIMEOUT, wait_for_workers=False
        )
        self.world = world
        self.address = f"{host}:{self._store.port}"

    def join(self, device: str) -> None:
        """Make this process rank 0; return once all ranks are there."""
        _join(self._store, Place(0, self.world, self.address), device)


def _join(store: Any, place: Place, device: str) -> None:
    # A rank may see all of its machine's GPUs, or its own alone.
    local = place.rank if device == "cpu" else place.rank % torch.cuda.device_count()
    # transformers looks for its place in the variables that torchrun sets.
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    os.environ |= dict(zip(names, map(str, (place.rank, local, place.world)), strict=True))
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    if dist.is_initialized():
        # Of a verifier that this process ran before.
        dist.destroy_process_group()
    dist.init_process_group(
        backend, store=store, rank=place.rank, world_size=place.world, timeout=_STEP_TIMEOUT
    )


class _Kind(IntEnum):
    FORWARD = 1
    KEEP = 2


class Leader:
    """Rank 0's TargetModel: what it does, the other ranks do with their shards."""

    def __init__(self, model: PagedModel) -> None:
        self._model = model
        self._channel = _Channel()

    @property
    def info(self) -> ModelInfo:
        """What the model is."""
        return self._model.info

    @info.setter
    def info(self, info: ModelInfo) -> None:
        self._model.info = info

    @property
    def pool(self) -> BlockPool:
        """The users of each block, on every rank."""
        return self._model.pool

    @property
    def block_tokens(self) -> int:
        """How many tokens' KV a block holds."""
        return self._model.block_tokens

    def forward(self, segments: Sequence[Segment]) -> npt.NDArray[np.float32]:
        """Return the wanted rows' logits; raise Unavailable if a rank is lost."""
        step = [int(_Kind.FORWARD), len(segments)]
        for blocks, start, tokens, wanted, parents, mutual, positions in segments:
            step += [len(blocks), start, len(tokens), wanted, len(parents), mutual, len(positions)]
            step += [*blocks, *tokens, *parents, *positions]
        try:
            self._channel.send(step)
            return self._model.forward(segments)
        except RuntimeError as error:
            raise Unavailable(f"a rank of the verifier is lost: {error}") from None

    def keep(self, blocks: Sequence[int], start: int, rows: Sequence[int]) -> None:
        """Move the KV of row start + rows[i] to row start + i; rows ascend."""
        try:
            self._channel.send([_Kind.KEEP, len(blocks), start, len(rows), *blocks, *rows])
        except RuntimeError as error:
            raise Unavailable(f"a rank of the verifier is lost: {error}") from None
        self._model.keep(blocks, start, rows)

    def batches(self, rows: int) -> Sequence[Sequence[int]]:
        """Return passes to run once before any session waits (see paged.Forward)."""
        return self._model.batches(rows)


def follow(model: PagedModel) -> None:
    """Do what rank 0 does until it is gone; raise ValueError where a step makes no sense."""
    channel = _Channel()
    while True:
        try:
            step = channel.receive()
        except RuntimeError:
            log.info("rank 0 is gone")
            return
        numbers = iter(step)
        kind = _take(numbers, 1)[0]
        if kind == _Kind.FORWARD:
            segments = [_segment(numbers) for _ in range(_take(numbers, 1)[0])]
            try:
                model.forward(segments)
            except RuntimeError:
                log.info("another rank is gone")
                return
        elif kind == _Kind.KEEP:
            held, start, moved = _take(numbers, 3)
            model.keep(_take(numbers, held), start, _take(numbers, moved))
        else:
            raise ValueError(f"unknown step {kind}")


def _segment(numbers: Iterator[int]) -> Segment:
    held, start, fed, wanted, nodes, mutual, placed = _take(numbers, 7)
    blocks, tokens, parents = (_take(numbers, count) for count in (held, fed, nodes))
    return Segment(blocks, start, tokens, wanted, parents, mutual, _take(numbers, placed))


def _take(numbers: Iterator[int], count: int) -> list[int]:
    """Return the next numbers; raise ValueError where there are fewer."""
    taken = [number for _, number in zip(range(count), numbers, strict=False)]
    if count < 0 or len(taken) != count:
        raise ValueError("a step is cut short")
    return taken


class _Channel:
    """Lists of integers from rank 0 to all others."""

    def __init__(self) -> None:
        self._group: Any = dist.new_group(backend="gloo", timeout=_IDLE_TIMEOUT)

    def send(self, step: Sequence[int]) -> None:
        self._broadcast(torch.tensor([len(step)]))
        self._broadcast(torch.tensor(step))

    def receive(self) -> list[int]:
        length = torch.zeros(1, dtype=torch.int64)
        self._broadcast(length)
        step = torch.zeros(int(length), dtype=torch.int64)
        self._broadcast(step)
        received: list[int] = step.tolist()
        return received

    def _broadcast(self, numbers: torch.Tensor) -> None:
        dist.broadcast(numbers, src=0, group=self._group)


def join_as_follower(place: Place, device: str) -> None:
    """Make this process one of the ranks after rank 0; return once all are there."""
    host, _, port = place.address.rpartition(":")
    store = TCPStore(host, int(port), place.world, is_master=False, timeout=_JOIN_TIMEOUT)
    _join(store, place, device)
