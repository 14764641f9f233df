"""The denoiser engine: continuous batching of sessions over one block-diffusion model. Synchronous.

One thread owns an engine. `open` and `submit` validate before anything is allocated or queued;
`step` makes one call of the model for as many sessions as share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from denoiser_service.admission import check_open
from denoiser_service.block_kv import BlockKv
from denoiser_service.core.draws import Draws, Logits
from denoiser_service.core.next import Rule
from denoiser_service.core.port import MakeDrafting
from denoiser_service.core.walk import walk
from denoiser_service.evaluation import Evaluator, Part
from denoiser_service.market import Market
from denoiser_service.schedule import Granted, schedule
from denoiser_service.session import Session
from foredraft.decoding.block_state import State, is_full, opened
from foredraft.denoising import Advance, Advanced, DenoiseOpen
from foredraft.errors import ConfigError, CorruptModelOutput, ForedraftError, InvalidRequest
from foredraft.limits import MAX_STATES
from foredraft.types import ModelInfo
from verifier_service.kv.block_table import KvBlocks
from verifier_service.models.port import TargetModel
from verifier_service.schedule.pricing import Pricing, Unpriced


class Outcome(NamedTuple):
    """How the advance of one handle ended."""

    handle: int
    result: Advanced | ForedraftError


class Counts:
    """What an engine did so far.

    A pass of the model is a call for each session that has a part in it; `drafts` are the drafted
    states that were evaluated, and steps - calls of them were accepted. `seconds` are of passes,
    `draft_seconds` of making drafts and choosing among them.
    """

    def __init__(self) -> None:
        self.passes = self.rows = self.calls = self.steps = self.drafts = self.corrupted = 0
        self.seconds = self.draft_seconds = 0.0

    def called(self, rows: int, seconds: float, drafts: int) -> None:
        """Count a call of the model."""
        self.passes += 1
        self.rows += rows
        self.seconds += seconds
        self.drafts += drafts


class DenoiserEngine:
    """Advances sessions. A handle names an open session, so that a re-opened one is a new one."""

    def __init__(
        self,
        model: TargetModel,
        kv: KvBlocks,
        drafting: MakeDrafting,
        *,
        row_budget: int = 256,
        prefill_rows: int = 64,
        most_drafts: int = 8,
        useful_drafts: int = MAX_STATES,
        draws: Draws | None = None,
        pricing: Pricing | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Raise ConfigError for a model without blocks, or one whose blocks the KV's cut apart.

        A session that asks for more than most_drafts is refused; one that asks for more than
        useful_drafts, all that are ever made in a call, gets no KV blocks for the rest.
        """
        info = model.info
        if not info.block_length or info.mask_token_id is None:
            raise ConfigError("the model is no block-diffusion model", param="model")
        if model.block_tokens % info.block_length:
            raise ConfigError(
                f"block_tokens must be a multiple of the model's {info.block_length} slots",
                param="block_tokens",
            )
        self.model, self._kv = model, kv
        self._length = info.block_length
        self._tables = BlockKv(model, kv)
        self._evaluate = Evaluator(model, self._tables, info.mask_token_id)
        self._drafting, self._draws = drafting, draws or Draws()
        self._row_budget, self._prefill_rows = row_budget, prefill_rows
        self._most_drafts, self._useful_drafts = most_drafts, useful_drafts
        self._clock = clock
        self._market = Market(pricing or Unpriced(), self._length, prefill_rows, clock)
        self._sessions: dict[int, Session] = {}
        self._answered: list[Outcome] = []
        self._opened = 0
        self.counts = Counts()

    @property
    def info(self) -> ModelInfo:
        """The target model."""
        return self.model.info

    @property
    def kv(self) -> KvBlocks:
        """The KV reservations."""
        return self._kv

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        pending = any(each.pending or each.unread for each in self._sessions.values())
        return bool(self._answered) or pending

    def open(self, request: DenoiseOpen) -> int:
        """Reserve KV for the session's worst case and return its handle; the prompt is read soon.

        Raise InvalidRequest naming the field, or Overloaded.
        """
        rows = check_open(request, self.info, self._most_drafts)
        request = replace(request, max_drafts=min(request.max_drafts, self._useful_drafts))
        handle = self._opened + 1
        self._tables.open(handle, rows, request.max_drafts, request.cache_salt, request.groups)
        self._opened = handle
        sampling = request.sampling
        rule = Rule(request.unmasking, sampling.temperature, sampling.seed, self._draws)
        drafting = self._drafting(rule, request.max_drafts)
        self._sessions[handle] = Session(
            request, rule, drafting, self._length, self.info.vocab_size, self._tables.has_room
        )
        return handle

    def close(self, handle: int) -> None:
        """Free a session; a handle that is not open is ignored."""
        if self._sessions.pop(handle, None) is not None:
            self._tables.close(handle)

    def submit(self, handle: int, request: Advance, arrived: float | None = None) -> None:
        """Queue an advance that arrived at a time of the engine's clock, by default now.

        Its outcome comes from a later `step`. Raise InvalidRequest or PrefixMismatch; the session
        stays open and as it was.
        """
        session = self._sessions.get(handle)
        if session is None:
            raise InvalidRequest("the session is not open", param="session_id")
        advanced = session.admit(request, self._clock() if arrived is None else arrived)
        if advanced is not None:
            self._answered.append(Outcome(handle, advanced))

    def step(self) -> list[Outcome]:
        """Make one call of what is wanted and return the advances that ended with it."""
        outcomes, self._answered = self._answered, []
        self.counts.draft_seconds += self._market.buy(self._sessions)
        parts = [self._part(each) for each in self._schedule()]
        if not parts:
            return outcomes
        started = self._clock()
        found, rows = self._evaluate(parts)
        seconds = self._clock() - started
        context = sum(len(part.states) * part.end for part in parts)
        full = sum(is_full(state) for part in parts for state in part.states)
        segments = full + sum(len(part.states) + (part.end > part.cached) for part in parts)
        self._market.called(rows, context, segments, seconds)
        self.counts.called(rows, seconds, drafts=sum(max(0, len(p.states) - 1) for p in parts))
        for part, logits in zip(parts, found, strict=True):
            # A served session goes to the end of the queue.
            session = self._sessions.pop(part.key)
            self._sessions[part.key] = session
            if part.end > part.cached:
                session.cached = part.end
                self._tables.settle(part.key, session.tokens, part.end)
            if not part.states:
                continue
            session.took(started, seconds, rows)
            result = self._walked(part.key, session, part.states, logits)
            if result is not None:
                outcomes.append(Outcome(part.key, result))
        return outcomes

    def _schedule(self) -> list[Granted]:
        for key, session in self._sessions.items():
            # What a session has just finished nobody else has read.
            if session.unread > self._length:
                session.cached = self._tables.adopt(key, session.tokens, session.cached)
        return schedule(
            [
                session.wanted(key)
                for key, session in self._sessions.items()
                if session.pending is not None or session.unread
            ],
            block_length=self._length,
            row_budget=self._row_budget,
            prefill_rows=self._prefill_rows,
        )

    def _part(self, granted: Granted) -> Part:
        session = self._sessions[granted.key]
        end = session.cached + granted.read
        states = session.states(granted.states)
        return Part(granted.key, session.tokens, session.cached, end, states)

    def _walked(
        self, key: int, session: Session, states: Sequence[State], logits: Sequence[Logits]
    ) -> Advanced | ForedraftError | None:
        """Leave a session's state for the next ones; return how its advance ended, if it did."""
        known, start = dict(zip(states, logits, strict=True)), session.start
        try:
            walks = [walk(states[0], known, session.rule, start)]
            end = walks[0].states[-1]
            if is_full(end) and end in known:
                # The next block's first state was evaluated after it.
                first = opened((), self._length)
                walks.append(walk(first, {first: known[end]}, session.rule, start + self._length))
        except CorruptModelOutput as error:
            self.counts.corrupted += 1
            session.pending = None
            return error
        steps = sum(len(each.states) for each in walks)
        self.counts.steps += steps
        self.counts.calls += 1
        session.called(steps - 1)
        session.walked(walks[0])
        if len(walks) > 1:
            self._tables.take(key, states.index(end) - 1, start, self._length)
            session.cached = start + self._length
            self._tables.settle(key, session.tokens, session.cached)
            session.walked(walks[1])
        return session.answer()
