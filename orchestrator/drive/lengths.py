"""One session's draft lengths: its controller, and what that learns of this session and others."""

from __future__ import annotations

from functools import reduce
from typing import Any

from orchestrator.controller_state import ControllerState
from orchestrator.length.controllers import Cause, Cost, DraftLengthController, Observation
from orchestrator.report import NO_DRAFT, Decision
from orchestrator.run_ahead import RunAheadGate

# Plain rounds in a row, by choice, after which a session counts as one that does not draft.
_IDLE_ROUNDS = 3
# Such a session learns and chooses once in as many tokens as sessions share its passes, within
# these bounds, unless it waits to begin to draft. Sessions share a core, with each other and often
# with the verifier, and share what they learn.
_LEAST_IDLE_TOKENS, _MOST_IDLE_TOKENS = 4, 16
_TOO_LATE = Decision(0, "to begin to draft does not pay for the tokens left", Cause.PLAIN)


class DraftLengths:
    """Chooses lengths by a controller and its state; shares what is learnt with other sessions."""

    def __init__(
        self,
        controller: DraftLengthController[Any],
        saved: ControllerState,
        min_hit_rate: float,
    ) -> None:
        self._controller = controller
        self._saved = saved
        drafts = controller.max_k > 0
        self._state = saved.start_state(controller) if drafts else controller.initial()
        self._gate = RunAheadGate(min_hit_rate)
        self._hit_rate = self._gate.start if saved.hit_rate is None else saved.hit_rate
        self._plain_rounds = 0
        # An idle session's newest rounds, which nothing was learnt from yet.
        self._unlearnt: list[Cost] = []
        self._most_sessions = 0
        # By the state as it is; None once that has changed.
        self._chosen: Decision | None = None
        # What the newest draft length was chosen by.
        self.decision = NO_DRAFT

    @property
    def max_k(self) -> int:
        """The longest draft that can be chosen."""
        return self._controller.max_k

    @property
    def wants_draft(self) -> bool:
        """Whether the next round is to have a draft."""
        return self._choice().k > 0

    @property
    def idle(self) -> bool:
        """Whether the session has decoded plainly, by choice, for a while."""
        return self._plain_rounds >= _IDLE_ROUNDS

    @property
    def features(self) -> str:
        """The features that the session's drafter is expected to read, "" for none."""
        return self._saved.features

    @features.setter
    def features(self, name: str) -> None:
        self._saved.features = name

    @property
    def store(self) -> str:
        """The tensor store that the session's drafter is expected to have, "" for none."""
        return self._saved.store

    @store.setter
    def store(self, name: str) -> None:
        self._saved.store = name

    @property
    def runs_ahead(self) -> bool:
        """Whether drafts for predicted outcomes pay now."""
        return self._gate.is_open(self._hit_rate)

    def next_k(self) -> int:
        """Return the length of the next draft, and keep the reason; 0 means plain decoding."""
        self.decision = self._choice()
        return self.decision.k

    def begin_pays(self, rows: int, tokens_left: int) -> bool:
        """Return whether drafts for the tokens left are worth opening a drafter's session for, and
        reading so many rows again.

        What is to be found out one session tries, and all know.
        """
        if self._choice().cause is Cause.PROBE and self._saved.trier not in (None, self):
            return False
        opening_s = self._saved.opening_s
        return self._controller.begin_pays(self._state, rows, opening_s, tokens_left)

    def begin(self) -> None:
        """Take note that a drafter's session is opened, as begin_pays has it."""
        if self._choice().cause is Cause.PROBE:
            self._saved.trier = self

    def opened(self, seconds: float) -> None:
        """Take note of how long opening a drafter's session took."""
        self._saved.opened(seconds)

    def decline(self) -> None:
        """Take note that no draft is requested, as beginning to draft does not pay."""
        self.decision = _TOO_LATE

    def observe(self, observation: Observation | None, cost: Cost) -> None:
        """Learn how a draft fared, if there was one, and what the round took.

        A session that has decoded plainly for a while learns from several rounds as one.
        """
        self._plain_rounds = 0 if cost.k or cost.offered else self._plain_rounds + 1
        self._saved.traffic.price = cost.price
        self._most_sessions = max(self._most_sessions, cost.price.sessions)
        if observation is not None and observation.predicted is not None:
            self._hit_rate = self._gate.update(self._hit_rate, observation.predicted)
        if self.max_k == 0:
            return
        if self._unlearnt and not self._unlearnt[-1].goes_with(cost):
            self._learn()
        self._unlearnt.append(cost)
        tokens = sum(each.tokens for each in self._unlearnt)
        enough = min(max(_LEAST_IDLE_TOKENS, cost.price.sessions), _MOST_IDLE_TOKENS)
        if not self.idle or self.wants_draft or tokens >= enough:
            self._learn(observation)

    def reset(self) -> None:
        """Forget what was learnt of a drafter that is left."""
        self._chosen = None
        self._unlearnt.clear()
        self._state = self._controller.initial()

    def save(self) -> None:
        """Keep what was learnt for later sessions."""
        self._end_trial()
        self._saved.traffic.ended(self._most_sessions)
        if self.max_k > 0:
            if self._unlearnt:
                self._learn()
            self._saved.save(self._controller, self._state)
        self._saved.hit_rate = self._hit_rate

    def _learn(self, observation: Observation | None = None) -> None:
        self._chosen = None
        state = self._saved.latest(self._controller, self._state)
        state = self._controller.spent(state, reduce(Cost.and_then, self._unlearnt))
        self._unlearnt.clear()
        if observation is not None:
            state = self._controller.update(state, observation)
        self._saved.share(self._controller, state)
        self._state = state
        if self._choice().cause is not Cause.PROBE:
            self._end_trial()

    def _end_trial(self) -> None:
        if self._saved.trier is self:
            self._saved.trier = None

    def _choice(self) -> Decision:
        if self._chosen is None:
            controller, state = self._controller, self._state
            k, cause, reason = controller.choose(state)
            self._chosen = Decision(k, reason, cause)
        return self._chosen
