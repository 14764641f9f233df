"""A carrier whose store is this process's memory, and that can lose what it holds."""

from __future__ import annotations

from collections.abc import Iterable

from foredraft.errors import TensorLost
from foredraft.tensors.carrier import is_same_store


class MemoryStore:
    """One replica's side of a store that replicas share: `held`, by reference."""

    def __init__(self, held: dict[bytes, bytes], least: int = 1, store: str = "here/node") -> None:
        self.held, self.least, self.store = held, least, store
        self.full = self.loses = False
        self.put_sizes: list[int] = []
        self.num_read = 0

    def pays(self, size: int, reader: str) -> bool:
        return is_same_store(self.store, reader) and size >= self.least

    async def put(self, data: bytes) -> bytes | None:
        if self.full:
            return None
        self.put_sizes.append(len(data))
        reference = f"{id(self)} {len(self.put_sizes)}".encode()
        self.held[reference] = data
        return reference

    async def get(self, reference: bytes, size: int) -> bytes:
        if self.loses or len(self.held.get(reference, b"")) != size:
            raise TensorLost("it is gone")
        self.num_read += 1
        return self.held[reference]

    def free(self, references: Iterable[bytes]) -> None:
        for reference in references:
            self.held.pop(reference, None)
