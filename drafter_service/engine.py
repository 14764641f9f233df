"""The drafter engine: sessions, their cached prefixes, and one forward pass for all that ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from drafter_service.core.lattice import BlockScores
from drafter_service.core.prefix_chain import PrefixChain
from drafter_service.core.proposals import Drafted
from drafter_service.kv_slots import KVSlots
from drafter_service.model.port import BlockRequest, DiffusionLM
from drafter_service.strategies import Strategy
from foredraft import limits
from foredraft.errors import CorruptModelOutput, ForedraftError, Overloaded, PrefixMismatch
from foredraft.types import DraftBlock, DraftOpen, DraftOpened, ModelInfo, Propose, Timings

StrategyOf = Callable[[DraftOpen], Strategy]


@dataclass(slots=True)
class _Session:
    request: DraftOpen
    strategy: Strategy
    chain: PrefixChain = field(default_factory=PrefixChain)


class DrafterEngine:
    """Owns the model; synchronous and for one thread.

    A session is named by the handle that `open` returned, so that a peer may open the same
    session id again before its old stream has ended.
    """

    def __init__(
        self,
        model: DiffusionLM,
        strategy_of: StrategyOf,
        info: ModelInfo,
        max_sessions: int,
        prefill_rows: int,
    ) -> None:
        self._model, self._strategy_of, self._info = model, strategy_of, info
        self._capabilities = model.capabilities
        self._max_sessions, self._prefill_rows = max_sessions, prefill_rows
        self._capacity = min(self._capabilities.max_len, self._capabilities.cache_tokens)
        self._slots = KVSlots(self._capabilities.cache_slots)
        self._sessions: dict[int, _Session] = {}
        self._next_handle = 0

    @property
    def info(self) -> ModelInfo:
        """The model, as sessions are told of it."""
        return self._info

    @property
    def sessions(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    @property
    def evictions(self) -> int:
        """How many cached prefixes gave way so far."""
        return self._slots.evictions

    def open(self, request: DraftOpen) -> tuple[int, DraftOpened]:
        """Open a session; return its handle and the answer. Raise InvalidRequest or Overloaded."""
        c = self._capabilities
        limits.check_range("prefix length", len(request.prefix), 1, request.max_len)
        limits.check_range("max_len", request.max_len, 1, self._capacity)
        limits.check_tokens("prefix", request.prefix, c.vocab_size)
        limits.check_sampling(request.sampling, c.vocab_size)
        if len(self._sessions) >= self._max_sessions:
            raise Overloaded(f"the drafter has its {self._max_sessions} sessions")
        session = _Session(request, self._strategy_of(request))
        session.chain.assign(0, request.prefix)
        session.strategy.assign(0, request.prefix)
        handle = self._next_handle
        self._next_handle += 1
        self._sessions[handle] = session
        return handle, DraftOpened(self._info, self._most_tokens(session))

    def close(self, handle: int) -> None:
        """Free the session; closing twice is harmless."""
        self._sessions.pop(handle, None)
        self._slots.release(handle)

    def propose(self, requests: Sequence[tuple[int, Propose]]) -> list[DraftBlock | ForedraftError]:
        """Return each request's block or error, from one forward pass for all of them.

        Handles must be distinct. A long prefix that is not cached is fed in passes of its own
        first. Blocks' timings hold batch_rows only.
        """
        answers: dict[int, DraftBlock | ForedraftError] = {}
        ready: list[tuple[int, Propose]] = []
        for handle, request in requests:
            try:
                self._advance(handle, request)
                copied = self._copied(handle, request)
                if copied is None:
                    ready.append((handle, request))
                else:
                    answers[handle] = copied
            except ForedraftError as error:
                answers[handle] = error
        step = self._capabilities.cache_slots
        for start in range(0, len(ready), step):
            answers.update(self._draft(ready[start : start + step]))
        return [answers[handle] for handle, _ in requests]

    def _most_tokens(self, session: _Session) -> int:
        return session.strategy.most_tokens(self._capabilities.max_block)

    def _advance(self, handle: int, request: Propose) -> None:
        """Move the session's context to request.base; on error it stays as it was."""
        session = self._sessions.get(handle)
        base = request.base
        if session is None or base.session_id != session.request.session_id:
            raise PrefixMismatch(f"session {base.session_id!r} is not open on this stream")
        limits.check_range("num_tokens", request.num_tokens, 1, self._most_tokens(session))
        longest = min(session.request.max_len, self._capacity - 1)
        limits.check_range("base.prefix_len", base.prefix_len, 1, longest)
        limits.check_range("keep_len", request.keep_len, 0, len(session.chain))
        limits.check_tokens("append", request.append, self._capabilities.vocab_size)
        if session.chain.hash_after(request.keep_len, request.append) != base.prefix_hash:
            raise PrefixMismatch("the tokens named do not hash to base.prefix_hash")
        same = session.chain.assign(request.keep_len, request.append)
        session.strategy.assign(same, session.chain.tokens[same:])
        self._slots.limit(handle, same)

    def _copied(self, handle: int, request: Propose) -> DraftBlock | None:
        """Return a block that needs no pass; the cache catches up with the next one that does."""
        session = self._sessions[handle]
        context = session.chain.tokens
        room = self._capacity - len(context) - 1
        path = session.strategy.copy(min(request.num_tokens, room), context) if room > 0 else None
        return None if path is None else _block(session, request, path, 0)

    def _draft(
        self, batch: Sequence[tuple[int, Propose]]
    ) -> dict[int, DraftBlock | ForedraftError]:
        blocks = [self._block_request(handle, request) for handle, request in batch]
        rows = sum(len(b.tokens) + b.num_slots for b in blocks)
        scores = self._model.draft(blocks)
        for handle, _ in batch:
            self._slots.store(handle, len(self._sessions[handle].chain))
        return {
            handle: self._finish(handle, request, block_scores, rows)
            for (handle, request), block_scores in zip(batch, scores, strict=True)
        }

    def _block_request(self, handle: int, request: Propose) -> BlockRequest:
        """Return the session's part of the pass, its missing tokens fed in chunks before."""
        session = self._sessions[handle]
        tokens = session.chain.tokens
        slot, cached = self._slots.acquire(handle, len(tokens) - 1)
        # Near the model's longest sequence the block is shorter than asked.
        num_slots = min(session.strategy.slots(request.num_tokens), self._capacity - len(tokens))
        if self._capabilities.prefix_kv == "none":
            return BlockRequest(slot, 0, tuple(tokens), num_slots)
        while len(tokens) - cached > self._prefill_rows:
            chunk = tokens[cached : cached + self._prefill_rows]
            self._model.draft([BlockRequest(slot, cached, chunk, 0)])
            cached += len(chunk)
            self._slots.store(handle, cached)
        return BlockRequest(slot, cached, tokens[cached:], num_slots)

    def _finish(
        self, handle: int, request: Propose, scores: BlockScores, rows: int
    ) -> DraftBlock | ForedraftError:
        if not np.isfinite(scores.log_q).all():
            return CorruptModelOutput("the drafter's scores are not finite")
        session = self._sessions[handle]
        drafted = session.strategy.draw(scores, request.num_tokens, session.chain.tokens)
        return _block(session, request, drafted, rows)


def _block(session: _Session, request: Propose, drafted: Drafted, rows: int) -> DraftBlock:
    return DraftBlock(
        base=request.base,
        tokens=drafted.tokens,
        parents=drafted.parents,
        proposal=session.request.proposal,
        generated_len=drafted.generated_len,
        bonus_guess=drafted.bonus_guess,
        timings=Timings(batch_rows=rows),
    )
