"""How much of the KV cache and of the sessions one group may hold, so that others find room. Pure.

The rule is that of shared buffers in switches (Choudhury and Hahne, "Dynamic queue length
thresholds for shared-memory packet switches", 1998): after an admission a group holds at most
`factor` times what is free. Alone it reaches factor / (1 + factor) of the whole, n groups together
n factor / (1 + n factor): somebody who holds nothing always finds room, and nothing is set aside
for groups that are not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foredraft.errors import Overloaded


class Shares:
    """What each group holds, in blocks and in sessions; a group that holds nothing may begin."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._blocks: Counter[str] = Counter()
        self._sessions: Counter[str] = Counter()

    def check(
        self, groups: Sequence[str], blocks: int, free_blocks: int, free_sessions: int
    ) -> None:
        """Raise Overloaded where a session of so many blocks is more than a group may hold.

        free_... are what is free before it.
        """
        for group in groups:
            if not self._sessions[group]:
                continue
            after = (
                (self._blocks[group] + blocks, free_blocks - blocks, "KV cache"),
                (self._sessions[group] + 1, free_sessions - 1, "sessions"),
            )
            for held, free, what in after:
                if held > self._factor * free:
                    raise Overloaded(
                        f"this request, or its tenant, holds its share of the verifier's {what}"
                    )

    def add(self, groups: Sequence[str], blocks: int) -> None:
        """Count a session for its groups."""
        for group in groups:
            self._blocks[group] += blocks
            self._sessions[group] += 1

    def drop(self, groups: Sequence[str], blocks: int) -> None:
        """Count it no longer."""
        for group in groups:
            self._blocks[group] -= blocks
            self._sessions[group] -= 1
            if not self._sessions[group]:
                del self._blocks[group], self._sessions[group]

    @property
    def groups(self) -> int:
        """The number of groups that hold something."""
        return len(self._sessions)
