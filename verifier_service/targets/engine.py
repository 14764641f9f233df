"""The verifier engine: continuous batching of sessions over one target model. Synchronous.

One thread owns an engine. `open` and `submit` validate before anything is allocated or queued;
`step` runs one forward for as many sessions as share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from foredraft.decoding.prefix import hash_prefix
from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest
from foredraft.types import Grammar, ModelInfo, Round, Verdict, VerifyOpen
from verifier_service.kv.block_table import KvBlocks
from verifier_service.models.port import TargetModel
from verifier_service.rules.grammars import Grammars, NoGrammars
from verifier_service.rules.logits import Guide, Shaper
from verifier_service.rules.rules import Decision, Logits, rule_of
from verifier_service.rules.sampling import Choice, GumbelArgmax, choose, gumbel_argmax
from verifier_service.schedule.admission import check_open
from verifier_service.schedule.batching import plan
from verifier_service.schedule.kv_manager import KvManager
from verifier_service.targets.features import FeatureLog, forward
from verifier_service.targets.session import Session
from verifier_service.targets.verify_step import hear, judge, shape

# What the grammars of all sessions may add to a pass, in seconds, by what each took last.
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
        argmax: GumbelArgmax = gumbel_argmax,
        choice: Choice = choose,
        grammars: Grammars | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._kv = kv
        self._row_budget = row_budget
        self._prefill_rows = prefill_rows
        self._argmax, self._choose = argmax, choice
        self._grammars = grammars or NoGrammars()
        self._clock = clock
        self._sessions: dict[int, Session] = {}
        self._answered: list[Outcome] = []
        self._manager = KvManager(model, kv)
        self._opened = 0
        self.corrupted = 0

    @property
    def info(self) -> ModelInfo:
        """The target model."""
        return self._model.info

    @property
    def model(self) -> TargetModel:
        """The target model, for what is asked of it beside rounds."""
        return self._model

    @property
    def kv(self) -> KvBlocks:
        """The KV reservations."""
        return self._kv

    @property
    def preempted(self) -> int:
        """How often a session lost its KV to another one."""
        return self._manager.preempted

    @property
    def has_work(self) -> bool:
        """True while a step would do something."""
        return bool(self._answered) or any(
            s.pending is not None or s.unread for s in self._sessions.values()
        )

    def guide(self, grammar: Grammar) -> Guide:
        """Return a new text's guide; it may take long, and any thread may ask.

        Raise InvalidRequest naming grammar.
        """
        return self._grammars.guide(grammar)

    def open(self, request: VerifyOpen, guide: Guide | None = None) -> int:
        """Reserve KV for the session's worst case and return its handle; prefill starts at once.

        guide is that of request.grammar, made here if it was not before. Raise InvalidRequest
        naming the field, or Overloaded.
        """
        info, commit_limit = self.info, check_open(request, self.info)
        if guide is None and request.grammar is not None:
            guide = self.guide(request.grammar)
        self._opened += 1
        handle = self._opened
        worst = min(commit_limit + request.max_draft + 1, info.max_len)
        self._kv.reserve(handle, worst, request.cache_salt)
        stops = frozenset(request.stop_token_ids)
        told = bool(request.features_hash) and request.features_hash == info.features_hash
        self._sessions[handle] = Session(
            session_id=request.session_id,
            rule=rule_of(request.acceptance, request.sampling, self._argmax),
            stop_token_ids=stops,
            max_draft=request.max_draft,
            commit_limit=commit_limit,
            max_len=info.max_len,
            tokens=list(request.prefix),
            prefix_hash=hash_prefix(request.prefix),
            shaper=Shaper(request.logits, stops, info.vocab_size, request.prefix, guide),
            logprobs=request.logprobs,
            heard=[] if request.prompt_logprobs else None,
            features=FeatureLog(request.features_from, info.features_width) if told else None,
        )
        return handle

    def close(self, handle: int) -> None:
        """Free a session; a handle that is not open is ignored."""
        self.tidy()
        session = self._sessions.pop(handle, None)
        if session is not None:
            self._kv.release(handle)

    def submit(self, handle: int, request: Round) -> None:
        """Queue a round; its outcome comes from a later `step`.

        Raise InvalidRequest or PrefixMismatch; the session stays open and as it was.
        """
        session = self._sessions.get(handle)
        if session is None:
            raise InvalidRequest("the session is not open", param="session_id")
        verdict = session.admit(request, self.info.vocab_size, self._clock())
        if verdict is not None:
            self._answered.append(Outcome(handle, verdict))

    def step(self) -> list[Outcome]:
        """Run one forward over what is pending and return the rounds that ended with it."""
        self.tidy()
        outcomes, self._answered = self._answered, []
        waiting = self._manager.share(self._sessions) | self._too_dear()
        shares = plan(
            [s.work(key) for key, s in self._sessions.items() if key not in waiting],
            row_budget=self._row_budget,
            prefill_rows=self._prefill_rows,
        )
        shares = self._manager.grant(shares, self._sessions)
        if not shares:
            return outcomes
        started = self._clock()
        sessions = [self._sessions[share.key] for share in shares]
        segments, draws, rows = [], [], 0
        for share, session in zip(shares, sessions, strict=True):
            segments.append(session.segment(share, self._manager.table(share.key)))
            rows += share.rows
            if session.pending is not None and session.pending.started is None:
                session.pending.started = started
            if share.decides:
                draws.extend(session.draws())
        logits = hear(shares, self._sessions, forward(self._model, segments, sessions))
        parts = [(share.key, self._sessions[share.key].deciding(share)) for share in shares]
        shaped = shape(parts, self._sessions, logits)
        chosen = self._choose(logits, draws)
        decisions = judge(parts, self._sessions, chosen, logits, shaped)
        spent = self._clock() - started
        for share in shares:
            # Whoever was served goes to the end of the queue.
            session = self._sessions.pop(share.key)
            self._sessions[share.key] = session
            if session.pending is not None:
                session.pending.compute_s += spent
            if not share.decides:
                session.read(share.rows)
                self._manager.read(share.key)
                continue
            result = self._commit(share.key, decisions[share.key], rows, shaped[share.key].raw)
            if result is not None:
                outcomes.append(Outcome(share.key, result))
        return outcomes

    def _too_dear(self) -> set[int]:
        """Return the sessions whose grammars would take this pass longer than others can wait."""
        seconds = 0.0
        waiting: set[int] = set()
        for key, session in self._sessions.items():
            if session.pending is not None and session.shaper.seconds:
                if seconds and seconds + session.shaper.seconds > _GRAMMARS_S:
                    waiting.add(key)
                else:
                    seconds += session.shaper.seconds
        return waiting

    def _commit(
        self, key: int, decision: Decision | ForedraftError, rows: int, raw: Logits
    ) -> Verdict | ForedraftError | None:
        """Return how a session's round ended; None if a plain round goes on."""
        session = self._sessions[key]
        if isinstance(decision, ForedraftError):
            self.corrupted += isinstance(decision, CorruptModelOutput)
            session.pending = None
            return decision
        first, path = len(session.tokens), decision.path
        verdict = session.commit(decision, rows, raw)
        self._manager.committed(key, first, path)
        return verdict

    def tidy(self) -> None:
        """Put the KV in order for the next pass: kv_manager.py.

        A step does so by itself; done between two, nobody waits for it.
        """
        self._manager.tidy(self._sessions)
