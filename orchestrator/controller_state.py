"""What sessions of one kind learn from each other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from foredraft.types import NO_PRICE, Price
from orchestrator.breaker import Breaker
from orchestrator.length.controllers import DraftLengthController
from orchestrator.waiting_line import WaitingLine

S = TypeVar("S")

_KINDS = 64

# How fast the least time for opening a drafter's session rises with times that are longer.
_LONGER = 1.02
# The weight of the last session to end in the number that share a verifier.
_USUAL_SHARE = 0.5


@dataclass(slots=True)
class Traffic:
    """The sessions that run in one orchestrator, and the verifier's newest price.

    usual is how many shared the verifier with the sessions that ended last: each one's most, in a
    fading mean. Those in line have no room at a verifier yet.
    """

    sessions: int = 0
    price: Price = NO_PRICE
    usual: float = 0.0
    line: WaitingLine = field(default_factory=WaitingLine)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more session."""
        self.sessions += 1
        try:
            yield
        finally:
            self.sessions -= 1

    def ended(self, most: int) -> None:
        """Take note of a session's end, and of how many it shared the verifier with at most."""
        self.usual += _USUAL_SHARE * (most - self.usual)

    @property
    def next_price(self) -> Price:
        """The newest price, as it will be once the sessions that are beginning take part.

        Requests often come several at once, and the first does not see the others: as many as
        usual are expected, until a verdict has their number.
        """
        begun = self.sessions - self.line.waiting
        sessions = max(begun, self.price.sessions, round(self.usual))
        return self.price._replace(sessions=sessions)


class ControllerState:
    """What the controllers of one kind of request have learnt.

    hit_rate is the run-ahead gate's, None before the first session ended. features names those
    that the last drafter read, store the tensor store that it had. opening_s is the least that
    opening a drafter's session took lately, breaker what sessions saw of late drafts. trier is the
    session that finds out whether drafts pay, None while none does. traffic is shared by all kinds.
    """

    def __init__(self, features: str = "", traffic: Traffic | None = None, store: str = "") -> None:
        self._state: Any = None
        self.hit_rate: float | None = None
        self.opening_s = 0.0
        self.breaker: Breaker | None = None
        self.trier: object | None = None
        self.features, self.store = features, store
        self.traffic = traffic or Traffic()

    def opened(self, seconds: float) -> None:
        """Take note of how long opening a drafter's session took."""
        self.opening_s = min(seconds, _LONGER * self.opening_s or seconds)

    def start_state(self, controller: DraftLengthController[S]) -> S:
        """Return the state to start with."""
        saved = controller.initial() if self._state is None else self._state
        start, self._state = controller.resumed(saved, self.traffic.next_price)
        return start

    def latest(self, controller: DraftLengthController[S], state: S) -> S:
        """Return a session's state with what the others have learnt meanwhile."""
        return state if self._state is None else controller.joined(state, self._state)

    def share(self, controller: DraftLengthController[S], state: S) -> None:
        """Let the others have what a session learnt of a round."""
        saved = controller.initial() if self._state is None else self._state
        self._state = controller.joined(saved, state)

    def save(self, controller: DraftLengthController[S], state: S) -> None:
        """Keep what is to be kept of a session's last state."""
        saved = controller.initial() if self._state is None else self._state
        self._state = controller.ended(saved, state)


class ControllerStates:
    """One state for each kind of request, for as many kinds as were seen last."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, ControllerState] = OrderedDict()
        self._traffic = Traffic()

    def of(self, kind: Hashable) -> ControllerState:
        """Return the state of a kind of request; all of a kind must use equal controllers."""
        state = self._kinds.pop(kind, None)
        if state is None:
            # A new kind of request most likely meets the drafter that the last one met.
            last = next(reversed(self._kinds.values()), None)
            state = (
                ControllerState(last.features, self._traffic, last.store)
                if last
                else ControllerState(traffic=self._traffic)
            )
        self._kinds[kind] = state
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        return state
