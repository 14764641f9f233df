"""The drafter engine: sessions, their cached prefixes, and one forward pass for all that ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from drafter_service.draft import Draft, Session
from drafter_service.feature_store import FeatureStore
from drafter_service.kv_slots import KVSlots
from drafter_service.models.port import BlockRequest, DiffusionLM
from drafter_service.proposals.denoising import Pass
from drafter_service.strategies import Strategy
from foredraft import limits
from foredraft.decoding.outcomes import outcomes_of
from foredraft.errors import ForedraftError, InvalidRequest, Overloaded, PrefixMismatch
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from foredraft.types import ModelInfo, Proposal, SamplingParams

StrategyOf = Callable[[DraftOpen], Strategy]

# Rows that a pass over several outcomes of a round has before their slots.
_MOST_BEFORE_BRANCHES = 16


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
        self._sessions: dict[int, Session] = {}
        self._next_handle = 0

    @property
    def info(self) -> ModelInfo:
        """The model's description for sessions."""
        return self._info

    @property
    def model(self) -> DiffusionLM:
        """The model, for its gauges."""
        return self._model

    def offers(self) -> dict[Proposal, int]:
        """Return the most tokens of a block by each way to propose that the model has."""
        found: dict[Proposal, int] = {}
        for proposal in Proposal:
            try:
                strategy = self._strategy_of(DraftOpen("", (0,), SamplingParams(), proposal, 1))
            except InvalidRequest:
                continue
            found[proposal] = strategy.max_draft_tokens
        return found

    @property
    def sessions(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    @property
    def evictions(self) -> int:
        """How many cached prefixes gave way so far."""
        return self._slots.evictions

    def offer(self, request: DraftOpen) -> DraftOpened:
        """Return what open would answer, and open nothing; raise InvalidRequest."""
        return DraftOpened(self._info, self._checked(request).max_draft_tokens)

    def open(self, request: DraftOpen) -> tuple[int, DraftOpened]:
        """Open a session; return its handle and the answer. Raise InvalidRequest or Overloaded."""
        strategy = self._checked(request)
        if len(self._sessions) >= self._max_sessions:
            raise Overloaded(f"the drafter has its {self._max_sessions} sessions")
        c = self._capabilities
        session = Session(request, strategy, FeatureStore(c.features_width, c.features_lag))
        session.chain.assign(0, request.prefix)
        handle = self._next_handle
        self._next_handle += 1
        self._sessions[handle] = session
        return handle, DraftOpened(self._info, strategy.max_draft_tokens)

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
        failed: dict[int, DraftBlock | ForedraftError] = {}
        drafts: list[Draft] = []
        for handle, request in requests:
            try:
                drafts.append(self._begin(handle, request))
            except ForedraftError as error:
                failed[handle] = error
        if failed:
            yield failed
        for done in self._finished(drafts, self._capabilities.cache_slots):
            yield {draft.handle: draft.answer for draft in done if draft.answer is not None}

    def answers_ahead(
        self, requests: Sequence[tuple[int, ProposeAhead]]
    ) -> dict[int, tuple[DraftBlock, ...] | ForedraftError]:
        """Return the blocks for predicted outcomes, or the error, by handle.

        Of each session the first outcomes are served, as many as there are slots for; of sessions
        without a cache slot none. All share each pass.
        """
        answers: dict[int, tuple[DraftBlock, ...] | ForedraftError] = {}
        begun: dict[int, list[Draft]] = {}
        slots = iter(range(self._capabilities.branch_slots))
        each = self._capabilities.branch_slots // len(requests)
        for handle, request in requests:
            try:
                self.name(handle, request)
                if len(begun) < self._capabilities.cache_slots:
                    branches = [next(slots) for _ in request.outcomes[1 : each + 1]]
                    begun[handle] = self._begin_ahead(handle, request, branches)
            except ForedraftError as error:
                answers[handle] = error
        drafts = [draft for of_session in begun.values() for draft in of_session]
        for _ in self._finished(drafts, max(1, len(drafts))):
            pass
        for handle, _ in requests:
            done = [draft.answer for draft in begun.get(handle, ())]
            # Not an answer to fail for: the next draft will.
            blocks = tuple(block for block in done if isinstance(block, DraftBlock))
            answers.setdefault(handle, blocks)
        return answers

    def _checked(self, request: DraftOpen) -> Strategy:
        c = self._capabilities
        limits.check_range("prefix length", len(request.prefix), 1, request.max_len)
        limits.check_range("max_len", request.max_len, 1, self._capacity)
        limits.check_tokens("prefix", request.prefix, c.vocab_size)
        limits.check_sampling(request.sampling, c.vocab_size)
        return self._strategy_of(request)

    def name(self, handle: int, request: Propose | ProposeAhead) -> Session:
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
        features = b""
        if isinstance(request, Propose):
            features = request.features
        else:
            self._check_ahead(session, request)
        session.features.assign(request.keep_len, base.prefix_len - 1, features)
        self._slots.limit(handle, session.chain.assign(request.keep_len, request.append))
        return session

    def _check_ahead(self, session: Session, request: ProposeAhead) -> None:
        if self._capabilities.features_hash:
            raise InvalidRequest(
                "predicted outcomes have no features, which this drafter reads", param="outcomes"
            )
        longest = min(session.request.max_len, self._capacity - 1)
        for tokens in request.outcomes:
            limits.check_range("outcomes length", request.base.prefix_len + len(tokens), 1, longest)
            limits.check_tokens("outcomes", tokens, self._capabilities.vocab_size)

    def _begin(self, handle: int, request: Propose) -> Draft:
        session = self.name(handle, request)
        context = session.chain.tokens
        room = self._capacity - len(context)
        passes = session.strategy.draft(request.num_tokens, context, room)
        return Draft(handle, session, request.base, passes)

    def _begin_ahead(
        self, handle: int, request: ProposeAhead, branches: Sequence[int]
    ) -> list[Draft]:
        """Return a draft for the first outcome, in the session's own slot, and one a branch."""
        session = self._sessions[handle]
        shared = request.base.prefix_len
        drafts = []
        for number, outcome in enumerate(outcomes_of(request)[: len(branches) + 1]):
            if number == 0:
                # If it comes true, the cache has it already.
                session.chain.assign(shared, outcome.tokens)
                slot, context = None, session.chain.tokens
            else:
                slot = self._capabilities.cache_slots + branches[number - 1]
                context = [*session.chain.tokens[:shared], *outcome.tokens]
            passes = session.strategy.draft(
                request.num_tokens, context, self._capacity - len(context)
            )
            drafts.append(Draft(handle, session, outcome.base, passes, slot, shared))
        return drafts

    def _finished(self, drafts: Sequence[Draft], at_once: int) -> Iterator[list[Draft]]:
        """Run passes for so many drafts at once until all have their answers; yield those that each
        pass completed.
        """
        for draft in drafts:
            draft.resume()
        if done := [draft for draft in drafts if draft.answer is not None]:
            yield done
        waiting = [draft for draft in drafts if draft.answer is None]
        for start in range(0, len(waiting), at_once):
            part = waiting[start : start + at_once]
            while part:
                self._pass(part)
                if done := [draft for draft in part if draft.answer is not None]:
                    yield done
                part = [draft for draft in part if draft.answer is None]

    def _pass(self, drafts: Sequence[Draft]) -> None:
        """Run one pass for all drafts."""
        blocks = [self._block_request(draft) for draft in drafts]
        rows = sum(len(b.tokens) + b.num_slots for b in blocks)
        scores = self._model.draft(blocks)
        for draft, block, block_scores in zip(drafts, blocks, scores, strict=True):
            draft.held = block.start + len(block.tokens)
            draft.rows += rows
            if draft.branch is None:
                # Drafted tokens behind the context are cached only while the proposal lasts; a
                # token whose features are yet to come is not.
                context = draft.session.chain
                self._slots.store(draft.handle, draft.session.features.known(len(context)))
            draft.resume(block_scores)

    def _block_request(self, draft: Draft) -> BlockRequest:
        """Return the draft's part of the pass, its missing tokens fed in chunks before."""
        asked = draft.asked
        assert asked is not None
        text, last = asked.text, len(asked.text) - 1
        if draft.branch is not None:
            return self._branch_request(draft, draft.branch, asked)
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
                sampling=asked.sampling,
            )
        features = draft.session.features
        cached = max(cached, features.known(min(draft.held, last)))
        # What branches share is fed once.
        most = _MOST_BEFORE_BRANCHES if draft.shared else self._prefill_rows
        while len(text) - cached > most:
            chunk = text[cached : min(last, cached + self._prefill_rows)]
            known = features.of(cached, cached + len(chunk))
            self._model.draft([BlockRequest(slot, cached, chunk, 0, (), known)])
            cached += len(chunk)
            self._slots.store(draft.handle, cached)
        known = features.of(cached, len(text))
        return BlockRequest(
            slot,
            cached,
            text[cached:],
            asked.num_slots,
            asked.filled,
            known,
            sampling=asked.sampling,
        )

    def _branch_request(self, draft: Draft, branch: int, asked: Pass) -> BlockRequest:
        """Return the part of a draft that shares the prefix of its session, whose part is ahead."""
        text = asked.text
        if draft.held:
            held = min(draft.held, len(text) - 1)
            prefix_slot = None
        else:
            prefix_slot, held = self._slots.acquire(draft.handle, draft.shared)
        return BlockRequest(
            branch,
            held,
            text[held:],
            asked.num_slots,
            asked.filled,
            prefix_slot=prefix_slot,
            sampling=asked.sampling,
        )
