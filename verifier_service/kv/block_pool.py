"""The KV cache's blocks: taken, shared by count, found again by what they hold. Pure.

A block that was sealed holds the KV of whole, committed tokens, named by a digest of the text up to
its end; it is never written again, so any session whose text begins so may share it. A sealed block
without users stays findable until its place is needed, the longest unused one first.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """Which of `total` blocks are used, by how many, and what the sealed ones hold.

    At most most_idle blocks stay findable without users; None: all.
    """

    def __init__(self, total: int, most_idle: int | None = None) -> None:
        self.total = total
        self._most_idle = total if most_idle is None else most_idle
        # Taken from the end: ascending numbers, so that neighbours in a text are so in memory.
        self._free = list(range(total - 1, -1, -1))
        self._users = [0] * total
        self._digests: dict[int, bytes] = {}
        self._sealed: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """How many blocks could be taken."""
        return len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """How many of these hold a text that could still be shared."""
        return len(self._idle)

    def take(self, count: int) -> list[int]:
        """Return blocks with one user, their contents undefined; none if there are not enough."""
        if count > self.available:
            return []
        taken = []
        for _ in range(count):
            if not self._free:
                self._forget_oldest()
            block = self._free.pop()
            self._users[block] = 1
            taken.append(block)
        return taken

    def give(self, blocks: Sequence[int]) -> None:
        """Take one user from each block; one without users can be taken again."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if self._users[block] < 0:
                raise ValueError(f"block {block} has no user")
            if self._users[block]:
                continue
            if block in self._digests:
                self._idle[block] = None
            else:
                self._free.append(block)
        while len(self._idle) > self._most_idle:
            self._forget_oldest()

    def seal(self, block: int, digest: bytes) -> None:
        """Let a used block be found by its digest, unless another is already."""
        if digest not in self._sealed and block not in self._digests:
            self._sealed[digest] = block
            self._digests[block] = digest

    def _forget_oldest(self) -> None:
        block, _ = self._idle.popitem(last=False)
        del self._sealed[self._digests.pop(block)]
        self._free.append(block)

    def share(self, digest: bytes) -> int | None:
        """Return the block of a digest with one user more, None if there is none."""
        block = self._sealed.get(digest)
        if block is not None:
            self._users[block] += 1
            self._idle.pop(block, None)
        return block


class Digests:
    """The digests of a text's whole blocks, each over all tokens up to the block's end."""

    def __init__(self, salt: str, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._chain = [hashlib.blake2b(salt.encode(), digest_size=16).digest()]

    def of(self, text: Sequence[int], block: int) -> bytes:
        """Return the digest of block number `block` of text; the text of a session only grows."""
        size = self._block_tokens
        for number in range(len(self._chain) - 1, block + 1):
            tokens = array("q", text[number * size : (number + 1) * size])
            data = self._chain[-1] + tokens.tobytes()
            self._chain.append(hashlib.blake2b(data, digest_size=16).digest())
        return self._chain[block + 1]
