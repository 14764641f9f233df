"""Which session's prefix each cache slot holds: pure bookkeeping, the least recent gives way."""

from __future__ import annotations

from collections import OrderedDict


class KVSlots:
    """A bounded set of cache slots. A session that lost its slot rebuilds it from its tokens."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._slots: OrderedDict[int, int] = OrderedDict()
        self._cached: dict[int, int] = {}
        self.evictions = 0

    def acquire(self, session: int, valid: int) -> tuple[int, int]:
        """Return the session's slot and how many leading tokens it holds, at most `valid`.

        Evicts the least recently used session if no slot is free; acquire for at most as many
        sessions as there are slots before their pass has run.
        """
        slot = self._slots.get(session)
        if slot is None:
            if self._free:
                slot = self._free.pop()
            else:
                evicted, slot = self._slots.popitem(last=False)
                del self._cached[evicted]
                self.evictions += 1
            self._slots[session] = slot
            self._cached[session] = 0
        self._slots.move_to_end(session)
        self._cached[session] = min(self._cached[session], valid)
        return slot, self._cached[session]

    def store(self, session: int, length: int) -> None:
        """Record that the session's slot holds its first `length` tokens."""
        self._cached[session] = length

    def limit(self, session: int, length: int) -> None:
        """Record that at most `length` of the session's cached tokens are still right."""
        if session in self._cached:
            self._cached[session] = min(self._cached[session], length)

    def release(self, session: int) -> None:
        """Free the session's slot, if it has one."""
        if session in self._slots:
            self._free.append(self._slots.pop(session))
            del self._cached[session]
