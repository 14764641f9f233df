"""Ray's object store as a carrier of tensors: foredraft.tensors.carrier.Carrier.

Objects are raw bytes, of which Ray unpickles nothing. A reference holds an object's id and its
owner's address, sealed with a secret of the cluster: neither an id nor an address that a message
merely claims is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import ray

from deployments.pools import TensorConfig
from deployments.serve.memory import cluster_secret
from deployments.serve.platform.objects import fetch_bytes, object_content
from foredraft.errors import TensorLost
from foredraft.tensors.carrier import is_same_node, is_same_store
from foredraft.tensors.reference import KEY_BYTES, seal, store_name, unseal
from foredraft.threads import in_thread

T = TypeVar("T")

_KEY_NAME = "foredraft_tensors"
_THREADS = 4

log = logging.getLogger(__name__)


class ObjectStore:
    """One replica's side of the object store; it owns what it puts there."""

    def __init__(self, config: TensorConfig) -> None:
        self._config = config
        self._key = cluster_secret(_KEY_NAME, KEY_BYTES)
        self.store = store_name(self._key, ray.get_runtime_context().get_node_id())
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="object store")
        self._held: dict[bytes, tuple[Any, int]] = {}
        # Of what is held and of what is being put.
        self._bytes = 0
        self._num_stored = 0

    def stats(self) -> dict[str, float]:
        """Return how many tensors were stored so far, and the bytes of those that still are."""
        return {"stored_tensors": self._num_stored, "stored_tensor_bytes": self._bytes}

    def pays(self, size: int, reader: str) -> bool:
        """Return whether the object store is the faster way to a reader of it."""
        if not is_same_store(self.store, reader):
            return False
        same = is_same_node(self.store, reader)
        least = self._config.same_node_mib if same else self._config.other_node_mib
        return least is not None and size >= least * (1 << 20)

    async def put(self, data: bytes) -> bytes | None:
        """Return a reference to data; None if there is no room, or no answer in time."""
        size = len(data)
        if self._bytes + size > self._config.max_mib * (1 << 20):
            return None
        self._bytes += size
        storing = self._call(lambda: _stored(data))
        try:
            async with asyncio.timeout(self._config.timeout_s):
                found, content = await asyncio.shield(storing)
        except BaseException as error:
            # It may be stored later, for nobody; until then its bytes count.
            storing.add_done_callback(lambda done: self._give_up(done, size))
            if not isinstance(error, Exception):
                raise
            log.warning("a tensor goes in chunks, not through the object store: %r", error)
            return None
        reference = seal(self._key, content)
        self._held[reference] = (found, size)
        self._num_stored += 1
        return reference

    async def get(self, reference: bytes, size: int) -> bytes:
        """Return the bytes of a reference that a replica of this cluster made."""
        content = unseal(self._key, reference)
        timeout_s = self._config.timeout_s
        try:
            # The thread gives up by itself; a little later, should it not.
            async with asyncio.timeout(2 * timeout_s):
                return await self._call(lambda: fetch_bytes(content, size, timeout_s))
        except TimeoutError:
            raise TensorLost("the object store did not answer in time") from None

    def free(self, references: Iterable[bytes]) -> None:
        """Give up what was put; whoever reads it right now still can."""
        for reference in references:
            _, size = self._held.pop(reference, (None, 0))
            self._bytes -= size

    def _give_up(self, storing: asyncio.Future[Any], size: int) -> None:
        self._bytes -= size
        if not storing.cancelled():
            storing.exception()  # read, so that asyncio does not log it

    def _call(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return in_thread(work, self._threads)


def _stored(data: bytes) -> tuple[Any, bytes]:
    found = ray.put(data)
    return found, object_content(found)
