"""Another process of a Ray cluster that puts tensors into its object store.

A module of its own: the process imports it, and would wait seconds for what a test imports.
"""

from __future__ import annotations

import os
from typing import Any

import ray

from deployments.pools import TensorConfig
from deployments.serve.platform.objects import object_content
from deployments.serve.tensors import ObjectStore
from foredraft.tensors.reference import seal

EVERY = TensorConfig(same_node_mib=0, other_node_mib=0)


class Replica:
    """Another process of the cluster."""

    def __init__(self) -> None:
        self._store = ObjectStore(EVERY)

    async def put(self, size: int) -> bytes | None:
        return await self._store.put(bytes(size))

    def put_pickled(self, path: str) -> bytes:
        """Return a sealed reference to an object that would make a folder if unpickled."""

        class Planted:
            def __reduce__(self) -> Any:
                return os.mkdir, (path,)

        self._planted = ray.put(Planted())
        return seal(self._store._key, object_content(self._planted))

    def free(self, reference: bytes) -> dict[str, float]:
        self._store.free([reference])
        return self._store.stats()
