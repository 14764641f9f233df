"""Block tables of the sessions, and how many sessions may have one. Pure.

A session reserves its worst case before anything is allocated, so at an overcommit of 1 a session
that was admitted never runs out. Above 1, more are let in than their worst cases allow: a table may
then fail to grow, and a session must be preempted (kv_manager.py chooses it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from foredraft.errors import InvalidRequest, Overloaded
from verifier_service.kv.block_pool import BlockPool, Digests
from verifier_service.kv.shares import Shares

# How many times what is free one group may hold: three quarters of all where it is alone.
SHARE_FACTOR = 3.0


@dataclass(slots=True)
class _Held:
    """What one session has: reserved counts blocks, table names those that it uses, in order.

    The first `sealed` blocks of the table are sealed or shared.
    """

    reserved: int
    digests: Digests
    groups: tuple[str, ...] = ()
    table: list[int] = field(default_factory=list)
    sealed: int = 0


class KvBlocks:
    """Hands out blocks of a pool; a key is whatever names a session."""

    def __init__(
        self,
        pool: BlockPool,
        *,
        block_tokens: int,
        max_sessions: int,
        overcommit: float = 1.0,
        share_factor: float = SHARE_FACTOR,
    ) -> None:
        self._pool = pool
        self._block_tokens = block_tokens
        self._max_sessions = max_sessions
        self._allowed = int(pool.total * overcommit)
        self._held: dict[int, _Held] = {}
        self._reserved = 0
        # Blocks of the session that was refused last because too few were free.
        self._refused = 0
        self._shares = Shares(share_factor)
        self.shared_tokens = 0

    @property
    def used_tokens(self) -> int:
        """Tokens in blocks that are reserved."""
        return self._reserved * self._block_tokens

    @property
    def wanted_tokens(self) -> int:
        """What the session refused last needs, in tokens, as long as there is no room for it."""
        short = self._refused > self._allowed - self._reserved
        return self._refused * self._block_tokens if short else 0

    @property
    def total_tokens(self) -> int:
        """Tokens in all blocks."""
        return self._pool.total * self._block_tokens

    @property
    def sessions(self) -> int:
        """Number of reservations held."""
        return len(self._held)

    @property
    def groups(self) -> int:
        """Number of groups that hold reservations."""
        return self._shares.groups

    def reserve(self, key: int, tokens: int, salt: str = "", groups: Sequence[str] = ()) -> None:
        """Reserve blocks for tokens; sessions of one salt may share what they have in common.

        Raise InvalidRequest if they could never fit, Overloaded if they do not fit now, or one of
        the groups that the session counts for holds its share.
        """
        if key in self._held:
            raise ValueError(f"key {key} holds a reservation")
        blocks = self._blocks(tokens)
        if blocks > self._pool.total:
            raise InvalidRequest(
                f"prefix + max_new_tokens + max_draft need {tokens} tokens of KV cache; "
                f"this verifier has {self.total_tokens}",
                param="max_new_tokens",
            )
        free, sessions = self._allowed - self._reserved, self._max_sessions - len(self._held)
        if sessions < 1:
            raise Overloaded(f"the verifier has its {self._max_sessions} sessions")
        if blocks > free:
            self._refused = blocks
            raise Overloaded(
                f"the verifier's KV cache has {free * self._block_tokens} tokens left; "
                f"{tokens} are needed"
            )
        self._shares.check(groups, blocks, free, sessions)
        self._shares.add(groups, blocks)
        self._held[key] = _Held(blocks, Digests(salt, self._block_tokens), tuple(groups))
        self._reserved += blocks

    def release(self, key: int) -> None:
        """Give blocks and reservation back; a key that holds none is ignored."""
        if key in self._held:
            self.drop(key)
            held = self._held.pop(key)
            self._reserved -= held.reserved
            self._shares.drop(held.groups, held.reserved)

    def drop(self, key: int) -> None:
        """Give all blocks back, not the reservation."""
        held = self._held[key]
        self._pool.give(held.table)
        held.table.clear()
        held.sealed = 0

    def table(self, key: int) -> Sequence[int]:
        """Return the blocks of a session's text, in order."""
        return self._held[key].table

    def grow(self, key: int, tokens: int) -> bool:
        """Make a table long enough for tokens; return False, changing nothing, if it cannot be."""
        table = self._held[key].table
        missing = self._blocks(tokens) - len(table)
        if missing > 0:
            taken = self._pool.take(missing)
            table.extend(taken)
            return bool(taken)
        return True

    def settle(self, key: int, text: Sequence[int], cached: int) -> None:
        """Take note that a session has KV of cached tokens of its text, and none beyond.

        Blocks beyond are given back; whole blocks can be shared from now on.
        """
        held = self._held[key]
        beyond = held.table[self._blocks(cached) :]
        if beyond:
            self._pool.give(beyond)
            del held.table[-len(beyond) :]
        while held.sealed < cached // self._block_tokens:
            self._pool.seal(held.table[held.sealed], held.digests.of(text, held.sealed))
            held.sealed += 1

    def adopt(self, key: int, text: Sequence[int], cached: int) -> int:
        """Attach shared blocks that continue a session's prefix; return the tokens cached then.

        The last token is left out: its row gives the next token.
        """
        held, before = self._held[key], cached
        while (number := self._next_whole(text, cached)) is not None:
            block = self._pool.share(held.digests.of(text, number))
            if block is None:
                break
            held.table.append(block)
            held.sealed += 1
            cached += self._block_tokens
        self.shared_tokens += cached - before
        return cached

    def due(self, key: int, text: Sequence[int], cached: int) -> list[bytes]:
        """Return the digests of the whole blocks of its text that a session has yet to fill."""
        numbers = range(cached // self._block_tokens, (len(text) - 1) // self._block_tokens)
        return [self._held[key].digests.of(text, number) for number in numbers]

    def _next_whole(self, text: Sequence[int], cached: int) -> int | None:
        whole = cached % self._block_tokens == 0 and cached + self._block_tokens < len(text)
        return cached // self._block_tokens if whole else None

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)
