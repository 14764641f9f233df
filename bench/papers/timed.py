"""A drafter port that adds up what the drafter's blocks cost it, and how long their text is."""

from __future__ import annotations

from collections import Counter

from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from orchestrator.ports import DrafterPort, DraftStream


class TimedDrafter:
    """Passes everything on to another port.

    compute_us holds all blocks' compute, used or not; generated counts the blocks by their L_gen
    (DiffuSpec Eq. 8).
    """

    def __init__(self, port: DrafterPort) -> None:
        self._port = port
        self.compute_us = 0
        self.generated: Counter[int] = Counter()

    async def open(self, request: DraftOpen) -> TimedStream:
        """Open the session on the other port."""
        return TimedStream(await self._port.open(request), self)


class TimedStream:
    """One session's stream; see ports.DraftStream."""

    def __init__(self, stream: DraftStream, owner: TimedDrafter) -> None:
        self._stream, self._owner = stream, owner

    @property
    def opened(self) -> DraftOpened:
        """The drafter's description of itself on open."""
        return self._stream.opened

    @property
    def draining(self) -> bool:
        """True once the replica asked the session to move."""
        return self._stream.draining

    async def propose(self, request: Propose) -> DraftBlock:
        """Return the other stream's block."""
        block = await self._stream.propose(request)
        self._owner.compute_us += block.timings.compute_us
        self._owner.generated[block.generated_len] += 1
        return block

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        """Return the other stream's blocks, which shared their passes."""
        blocks = await self._stream.propose_ahead(request)
        self._owner.compute_us += max((block.timings.compute_us for block in blocks), default=0)
        self._owner.generated.update(block.generated_len for block in blocks)
        return blocks

    async def close(self) -> None:
        """End the session on the drafter."""
        await self._stream.close()
