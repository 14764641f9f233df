"""The verifier engine: continuous batching of sessions over one target model. Synchronous.

One thread owns an engine. `open` and `submit` validate before anything is allocated or queued;
`step` runs one forward for as many sessions as share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest
from foredraft.messages import Round, Verdict, VerifyOpen
from foredraft.types import Grammar, ModelInfo, Price
from verifier_service.kv.block_table import KvBlocks
from verifier_service.models.port import TargetModel
from verifier_service.rules.grammars import Grammars, NoGrammars
from verifier_service.rules.guesses import Guesses, likeliest
from verifier_service.rules.logits import GrammarMatcher
from verifier_service.rules.ngrams import TreeGrower, reference_trees
from verifier_service.rules.rules import Decision, Logits
from verifier_service.rules.sampling import Choice, GumbelArgmax, choose, gumbel_argmax
from verifier_service.schedule.admission import check_open
from verifier_service.schedule.batching import schedule
from verifier_service.schedule.gathering import Gathering
from verifier_service.schedule.kv_manager import KvManager
from verifier_service.schedule.market import Market, PassCounts
from verifier_service.schedule.pricing import Pricing, Unpriced
from verifier_service.targets.opening import SessionMaker
from verifier_service.targets.pending import NextPlain
from verifier_service.targets.rounds import admit, go_on
from verifier_service.targets.session import Session
from verifier_service.targets.verdicts import commit
from verifier_service.targets.verify_step import (
    accept,
    apply_logits_processors,
    collect_prompt_logprobs,
    forward,
)

# The masks of all sessions in one forward pass, in seconds, as each measured last.
_GRAMMARS_S = 0.02


class Outcome(NamedTuple):
    """How the round of one handle ended."""

    handle: int
    result: Verdict | ForedraftError


class VerifierEngine:
    """Decides rounds. A handle names an open session, so that a re-opened one is a new one."""

    def __init__(
        self,
        model: TargetModel,
        kv: KvBlocks,
        *,
        row_budget: int = 256,
        prefill_rows: int = 64,
        plain_round_s: float = 0.25,
        argmax: GumbelArgmax = gumbel_argmax,
        choice: Choice = choose,
        guesses: Guesses = likeliest,
        trees: TreeGrower = reference_trees,
        grammars: Grammars | None = None,
        pricing: Pricing | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._kv = kv
        self._row_budget = row_budget
        self._prefill_rows = prefill_rows
        self._choose = choice
        self._maker = SessionMaker(model.info, plain_round_s, argmax, guesses, trees, clock)
        self._grammars = grammars or NoGrammars()
        self._market = Market(pricing or Unpriced(), prefill_rows, clock())
        self._clock = clock
        self._sessions: dict[int, Session] = {}
        self._answered: list[Outcome] = []
        self._manager = KvManager(model, kv)
        self._gathering = Gathering()
        self._opened = 0
        self.corrupted = 0

    @property
    def info(self) -> ModelInfo:
        """The target model."""
        return self._model.info

    @property
    def model(self) -> TargetModel:
        """The target model, for the audit's scores."""
        return self._model

    @property
    def kv(self) -> KvBlocks:
        """The KV reservations."""
        return self._kv

    @property
    def counts(self) -> PassCounts:
        """What was done so far."""
        return self._market.counts

    @property
    def price(self) -> Price:
        """What drafts cost, after the last pass."""
        return self._market.price

    @property
    def preempted(self) -> int:
        """How often a session lost its KV to another one."""
        return self._manager.preempted

    @property
    def has_work(self) -> bool:
        """True while a step would do something."""
        return bool(self._answered) or any(session.has_rows for session in self._sessions.values())

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """Return the matcher of a new session; slow, and safe to call from any thread.

        Raise InvalidRequest naming grammar.
        """
        return self._grammars.matcher(grammar)

    def open(self, request: VerifyOpen, matcher: GrammarMatcher | None = None) -> int:
        """Reserve KV for the session's worst case and return its handle; prefill starts at once.

        matcher is that of request.grammar; made here if None. Raise InvalidRequest
        naming the field, or Overloaded.
        """
        commit_limit = check_open(request, self.info)
        if matcher is None and request.grammar is not None:
            matcher = self.matcher(request.grammar)
        self._opened += 1
        handle = self._opened

        def reserve(rows: int) -> None:
            self._kv.reserve(handle, rows, request.cache_salt, request.groups)

        session = self._maker.session(request, commit_limit, matcher, reserve)
        self._gathering.opened(handle, self._clock())
        self._sessions[handle] = session
        return handle

    def close(self, handle: int) -> None:
        """Free a session; a handle that is not open is ignored."""
        self.compact()
        session = self._sessions.pop(handle, None)
        if session is not None:
            self._kv.release(handle)
            self._gathering.closed(handle)

    def submit(
        self,
        handle: int,
        request: Round,
        arrived: float | None = None,
        following: NextPlain | None = None,
    ) -> None:
        """Queue a round that arrived at a time of the engine's clock, by default now.

        Its outcome comes from a later `step`, which begins the following round if that is wanted.
        Raise InvalidRequest or PrefixMismatch; the session stays open and as it was.
        """
        session = self._sessions.get(handle)
        if session is None:
            raise InvalidRequest("the session is not open", param="session_id")
        now = self._clock() if arrived is None else arrived
        present = session.pending is not None
        price = self._market.price
        verdict = admit(session, request, self.info.vocab_size, now, price, following)
        if verdict is not None:
            self._answered.append(Outcome(handle, verdict))
        if session.pending is not None and not present:
            self._gathering.came(handle, now)

    def patience_s(self) -> float:
        """Return how long the next step should wait for rounds that are about to come."""
        if self._answered:
            return 0.0
        present = {key for key, session in self._sessions.items() if session.has_rows}
        room = self._row_budget - len(present)
        prompts = {
            key: unread
            for key, session in self._sessions.items()
            if session.pending is None and 0 < (unread := session.pending_rows(key).prefill) <= room
        }
        if len(present) == len(self._sessions) and not prompts:
            return 0.0
        return self._gathering.wait_s(present, prompts, self._clock(), self._market.pass_s)

    def step(self) -> list[Outcome]:
        """Run one forward over what is pending and return the rounds that ended with it.

        Where rounds were asked for again, only their verdicts are returned: until their sessions
        have them they ask for no other round, and would miss every second pass.
        """
        outcomes, self._answered = self._answered, []
        if outcomes:
            return outcomes
        self._gathering.began()
        self.compact()
        waiting = self._manager.attach_shared_prefixes(self._sessions) | self._costly_grammars()
        self._market.buy(self._sessions, waiting)
        scheduled = schedule(
            [s.pending_rows(key) for key, s in self._sessions.items() if key not in waiting],
            row_budget=self._row_budget,
            prefill_rows=self._prefill_rows,
        )
        scheduled = self._manager.allocate(scheduled, self._sessions)
        if not scheduled:
            return outcomes
        started = self._clock()
        sessions = [self._sessions[rows.key] for rows in scheduled]
        segments, draws, batch_rows = [], [], 0
        for rows, session in zip(scheduled, sessions, strict=True):
            segments.append(session.segment(rows, self._manager.table(rows.key)))
            batch_rows += rows.rows
            if session.pending is not None and session.pending.started is None:
                session.pending.started = started
                waited_s = self._market.prefill_since(session.pending.arrived)
                session.pending.queue_prefill_s = waited_s
            if rows.decides:
                draws.extend(session.draws())
        logits = forward(self._model, segments, sessions)
        logits = collect_prompt_logprobs(scheduled, self._sessions, logits)
        parts = [(rows.key, self._sessions[rows.key].num_round_rows(rows)) for rows in scheduled]
        processed = apply_logits_processors(parts, self._sessions, logits)
        chosen = self._choose(logits, draws)
        decisions = accept(parts, self._sessions, chosen, logits, processed)
        ended = self._clock()
        self._market.passed(self._sessions, scheduled, started, ended)
        for rows in scheduled:
            key = rows.key
            # A served session goes to the end of the queue.
            session = self._sessions.pop(key)
            self._sessions[key] = session
            if session.pending is not None:
                session.pending.compute_s += ended - started
                session.pending.compute_prefill_s += self._market.prefill_s
            if not rows.decides:
                session.read(rows.rows)
                self._manager.read(key)
                continue
            before = len(session.tokens)
            result = self._commit(key, decisions[key], batch_rows, processed[key].raw)
            if result is not None:
                outcomes.append(Outcome(key, result))
                if not go_on(session, ended, self._market.price):
                    self._gathering.left(key, ended, rows.rows, len(session.tokens) - before)
        return outcomes

    def _costly_grammars(self) -> set[int]:
        """Return the sessions whose masks would exceed the pass's budget of _GRAMMARS_S."""
        seconds = 0.0
        waiting: set[int] = set()
        for key, session in self._sessions.items():
            if session.pending is not None and session.processors.seconds:
                if seconds and seconds + session.processors.seconds > _GRAMMARS_S:
                    waiting.add(key)
                else:
                    seconds += session.processors.seconds
        return waiting

    def _commit(
        self, key: int, decision: Decision | ForedraftError, rows: int, raw: Logits
    ) -> Verdict | ForedraftError | None:
        """Return how a session's round ended; None if a plain round goes on."""
        session, counts = self._sessions[key], self.counts
        if isinstance(decision, ForedraftError):
            self.corrupted += isinstance(decision, CorruptModelOutput)
            session.pending = session.following = None
            return decision
        first, path = len(session.tokens), decision.path
        if not session.offers_draft:
            counts.own_bought += session.num_bought
            counts.own_kept += len(path)
        verdict = commit(session, decision, rows, raw, self._market.price)
        self._manager.committed(key, first, path)
        return verdict

    def compact(self) -> None:
        """Move and return KV blocks before the next pass (kv_manager.py).

        `step` does it, too; between two steps it delays no round.
        """
        self._manager.compact(self._sessions)
