"""The sessions' KV blocks: shared between equal prefixes, allocated for each forward pass.

When there is none left, it is taken from one session for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verifier_service.kv.block_table import KvBlocks
from verifier_service.models.port import TargetModel
from verifier_service.schedule.batching import ScheduledRows
from verifier_service.targets.session import Session

Sessions = Mapping[int, Session]


class KvManager:
    """Keeps the block tables in step with what sessions have cached; keys name sessions.

    preempted counts the sessions that lost their KV to another one.
    """

    def __init__(self, model: TargetModel, kv: KvBlocks) -> None:
        self._model = model
        self._kv = kv
        # Kept branches whose KV is still where the tree had it: key, first row, rows.
        self._moves: list[tuple[int, int, tuple[int, ...]]] = []
        self._changed: set[int] = set()
        self.preempted = 0

    def table(self, key: int) -> Sequence[int]:
        """Return the blocks of a session, in order."""
        return self._kv.table(key)

    def committed(self, key: int, first: int, path: tuple[int, ...]) -> None:
        """Record that KV rows first + path[i] of a session now belong at first + i."""
        self._changed.add(key)
        if path != tuple(range(len(path))):
            self._moves.append((key, first, path))

    def read(self, key: int) -> None:
        """Record that a session has more KV than before."""
        self._changed.add(key)

    def compact(self, sessions: Sessions) -> None:
        """Move the KV of accepted branches into place, and return blocks that are not needed.

        Due before a forward pass; between two passes it delays no round.
        """
        for key, first, path in self._moves:
            self._model.keep(self.table(key), first, path)
        self._moves.clear()
        for key in self._changed:
            self._kv.settle(key, sessions[key].tokens, sessions[key].cached)
        self._changed.clear()

    def attach_shared_prefixes(self, sessions: Sessions) -> set[int]:
        """Attach blocks of equal prefixes to sessions that need prefill.

        Return those that should not read now: another is about to read the same. The one that
        has read most goes first.
        """
        reading = [key for key, session in sessions.items() if session.needs_prefill]
        coming: set[bytes] = set()
        waiting: set[int] = set()
        for key in sorted(reading, key=lambda key: -sessions[key].cached):
            session = sessions[key]
            shareable = session.shareable
            session.reuse_prefix(self._kv.adopt(key, shareable, session.cached))
            due = self._kv.due(key, session.tokens, session.cached)
            whole = session.cached % self._model.block_tokens == 0
            shared = session.cached + self._model.block_tokens <= len(shareable)
            if shared and whole and due and due[0] in coming:
                waiting.add(key)
            coming.update(due)
        return waiting

    def allocate(self, shares: Sequence[ScheduledRows], sessions: Sessions) -> list[ScheduledRows]:
        """Allocate blocks for scheduled rows; return the rows that got them.

        A session without free blocks preempts one without a round in flight, else a younger one;
        that one reads its text again later. So the oldest session always goes on.
        """
        granted: set[int] = set()
        lost: set[int] = set()
        for share in sorted(shares, key=lambda share: share.key):
            if share.key in lost:
                continue
            end = sessions[share.key].cached + share.rows
            while not self._kv.grow(share.key, end):
                victim = self._victim(share.key, granted, sessions)
                if victim is None:
                    break
                lost.add(victim)
                self._preempt(victim, sessions[victim])
            else:
                granted.add(share.key)
        return [share for share in shares if share.key in granted]

    def _victim(self, key: int, granted: set[int], sessions: Sessions) -> int | None:
        held = [k for k in sessions if k != key and k not in granted and self._kv.table(k)]
        idle = [k for k in held if sessions[k].pending is None]
        younger = [k for k in held if k > key]
        return max(idle or younger, default=None)

    def _preempt(self, key: int, session: Session) -> None:
        self._kv.drop(key)
        self._changed.discard(key)
        session.drop_kv()
        self.preempted += 1
