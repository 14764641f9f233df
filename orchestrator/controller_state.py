"""What one session learnt, for the next one of its kind to start from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from foredraft.types import NO_PRICE, Price
from orchestrator.length.controllers import DraftLengthController

S = TypeVar("S")

_KINDS = 64


@dataclass(slots=True)
class Traffic:
    """The sessions that run in one orchestrator, and the verifier's newest price."""

    sessions: int = 0
    price: Price = NO_PRICE

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more session."""
        self.sessions += 1
        try:
            yield
        finally:
            self.sessions -= 1

    @property
    def next_price(self) -> Price:
        """The newest price, as it will be once the sessions that are beginning take part."""
        return self.price._replace(sessions=max(self.sessions, self.price.sessions))


class ControllerState:
    """The last state of a kind's controllers.

    hit_rate is the run-ahead gate's, None before the first session ended. features names those
    that the last drafter read, store the tensor store that it had. traffic is shared by all kinds.
    """

    def __init__(self, features: str = "", traffic: Traffic | None = None, store: str = "") -> None:
        self._state: Any = None
        self.hit_rate: float | None = None
        self.features, self.store = features, store
        self.traffic = traffic or Traffic()

    def start_state(self, controller: DraftLengthController[S]) -> S:
        """Return the state to start with."""
        saved = controller.initial() if self._state is None else self._state
        start, self._state = controller.resumed(saved, self.traffic.next_price)
        return start

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
