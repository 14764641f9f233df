"""The drafter engine: sessions, their cached prefixes, and one forward pass for all that ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from drafter_service.feature_store import FeatureStore
from drafter_service.kv_slots import KVSlots
from drafter_service.models.port import BlockRequest, DiffusionLM
from drafter_service.proposals.denoising import Pass, Passes
from drafter_service.proposals.lattice import BlockScores
from drafter_service.proposals.prefix_chain import PrefixChain
from drafter_service.proposals.proposals import Drafted
from drafter_service.strategies import Strategy
from foredraft import limits
from foredraft.errors import CorruptModelOutput, ForedraftError, Overloaded, PrefixMismatch
from foredraft.types import DraftBlock, DraftOpen, DraftOpened, ModelInfo, Propose, Timings

StrategyOf = Callable[[DraftOpen], Strategy]


@dataclass(slots=True)
class _Session:
    request: DraftOpen
    strategy: Strategy
    features: FeatureStore
    chain: PrefixChain = field(default_factory=PrefixChain)


@dataclass(slots=True)
class _Draft:
    """A proposal under way: what it waits for, and how far its text is in the cache."""

    handle: int
    session: _Session
    request: Propose
    passes: Passes[Drafted]
    asked: Pass | None = None
    held: int = 0
    rows: int = 0


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
        """The model's description for sessions."""
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
        store = FeatureStore(c.features_width, c.features_lag)
        session = _Session(request, self._strategy_of(request), store)
        session.chain.assign(0, request.prefix)
        handle = self._next_handle
        self._next_handle += 1
        self._sessions[handle] = session
        return handle, DraftOpened(self._info, session.strategy.max_draft_tokens)

    def close(self, handle: int) -> None:
        """Free the session; closing twice is harmless."""
        self._sessions.pop(handle, None)
        self._slots.release(handle)

    def propose(self, requests: Sequence[tuple[int, Propose]]) -> list[DraftBlock | ForedraftError]:
        """Return each request's block or error (see answers)."""
        answers: dict[int, DraftBlock | ForedraftError] = {}
        for known in self.answers(requests):
            answers.update(known)
        return [answers[handle] for handle, _ in requests]

    def answers(
        self, requests: Sequence[tuple[int, Propose]]
    ) -> Iterator[dict[int, DraftBlock | ForedraftError]]:
        """Yield blocks or errors by handle, after each pass those that it completed.

        Handles must be distinct. Every pass serves all that still wait. A long prefix that is not
        cached is fed in passes of its own first. Blocks' timings hold batch_rows only, summed over
        their passes.
        """
        done: dict[int, DraftBlock | ForedraftError] = {}
        drafts: list[_Draft] = []
        for handle, request in requests:
            try:
                draft = self._begin(handle, request)
            except ForedraftError as error:
                done[handle] = error
                continue
            block = _resume(draft, None)
            if block is None:
                drafts.append(draft)
            else:
                done[handle] = block
        if done:
            yield done
        step = self._capabilities.cache_slots
        for start in range(0, len(drafts), step):
            waiting = drafts[start : start + step]
            while waiting:
                done = self._pass(waiting)
                waiting = [draft for draft in waiting if draft.handle not in done]
                if done:
                    yield done

    def _begin(self, handle: int, request: Propose) -> _Draft:
        """Move the session's context to request.base; on error it stays as it was."""
        session = self._sessions.get(handle)
        base = request.base
        if session is None or base.session_id != session.request.session_id:
            raise PrefixMismatch(f"session {base.session_id!r} is not open on this stream")
        limits.check_range("num_tokens", request.num_tokens, 1, session.strategy.max_draft_tokens)
        longest = min(session.request.max_len, self._capacity - 1)
        limits.check_range("base.prefix_len", base.prefix_len, 1, longest)
        limits.check_range("keep_len", request.keep_len, 0, len(session.chain))
        limits.check_tokens("append", request.append, self._capabilities.vocab_size)
        if session.chain.hash_after(request.keep_len, request.append) != base.prefix_hash:
            raise PrefixMismatch("the tokens named do not hash to base.prefix_hash")
        session.features.assign(request.keep_len, base.prefix_len - 1, request.features)
        same = session.chain.assign(request.keep_len, request.append)
        context = session.chain.tokens
        self._slots.limit(handle, same)
        room = self._capacity - len(context)
        passes = session.strategy.draft(request.num_tokens, context, room)
        return _Draft(handle, session, request, passes)

    def _pass(self, drafts: Sequence[_Draft]) -> dict[int, DraftBlock | ForedraftError]:
        """Run one pass for all drafts; return the answers of those that it completed."""
        blocks = [self._block_request(draft) for draft in drafts]
        rows = sum(len(b.tokens) + b.num_slots for b in blocks)
        scores = self._model.draft(blocks)
        done: dict[int, DraftBlock | ForedraftError] = {}
        for draft, block, block_scores in zip(drafts, blocks, scores, strict=True):
            draft.held = block.start + len(block.tokens)
            draft.rows += rows
            # Drafted tokens behind the context are cached only while the proposal lasts; a token
            # whose features are yet to come is not.
            context = draft.session.chain
            self._slots.store(draft.handle, draft.session.features.known(len(context)))
            answer = _resume(draft, block_scores)
            if answer is not None:
                done[draft.handle] = answer
        return done

    def _block_request(self, draft: _Draft) -> BlockRequest:
        """Return the session's part of the pass, its missing tokens fed in chunks before."""
        asked = draft.asked
        assert asked is not None
        text, last = asked.text, len(asked.text) - 1
        slot, cached = self._slots.acquire(draft.handle, last)
        if self._capabilities.prefix_kv != "exact":
            tentative = bool(asked.filled) or len(text) > len(draft.session.chain)
            return BlockRequest(
                slot,
                0,
                tuple(text),
                asked.num_slots,
                asked.filled,
                tentative=tentative,
                fresh=cached == 0,
            )
        features = draft.session.features
        cached = max(cached, features.known(min(draft.held, last)))
        while len(text) - cached > self._prefill_rows:
            chunk = text[cached : cached + self._prefill_rows]
            known = features.of(cached, cached + len(chunk))
            self._model.draft([BlockRequest(slot, cached, chunk, 0, (), known)])
            cached += len(chunk)
            self._slots.store(draft.handle, cached)
        known = features.of(cached, len(text))
        return BlockRequest(slot, cached, text[cached:], asked.num_slots, asked.filled, known)


def _resume(draft: _Draft, scores: BlockScores | None) -> DraftBlock | ForedraftError | None:
    """Run a draft on to its next pass, from its beginning or its last one's scores.

    Return its block, or its error, if it asks for no further pass.
    """
    if scores is not None and not np.isfinite(scores.log_q).all():
        return CorruptModelOutput("the drafter's scores are not finite")
    try:
        draft.asked = next(draft.passes) if scores is None else draft.passes.send(scores)
        return None
    except StopIteration as end:
        return _block(draft, end.value)


def _block(draft: _Draft, drafted: Drafted) -> DraftBlock:
    return DraftBlock(
        base=draft.request.base,
        tokens=drafted.tokens,
        parents=drafted.parents,
        proposal=draft.session.request.proposal,
        generated_len=drafted.generated_len,
        bonus_guess=drafted.bonus_guess,
        timings=Timings(batch_rows=draft.rows),
        q=drafted.q,
        expected=drafted.expected,
    )
