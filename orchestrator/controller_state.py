"""What one session learnt, for the next one of its kind to start from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, TypeVar

from foredraft.types import NO_PRICE
from orchestrator.length.controllers import DraftLengthController

S = TypeVar("S")

_KINDS = 64


class ControllerState:
    """The last state of a kind's controllers, and the verifier's newest price.

    hit_rate is the run-ahead gate's, None before the first session ended. features names those
    that the last drafter read.
    """

    def __init__(self, features: str = "") -> None:
        self._state: Any = None
        self.price = NO_PRICE
        self.hit_rate: float | None = None
        self.features = features

    def start_state(self, controller: DraftLengthController[S]) -> S:
        """Return the state to start with."""
        if self._state is None:
            return controller.initial()
        start, self._state = controller.resumed(self._state, self.price)
        return start

    def save(self, controller: DraftLengthController[S], state: S) -> None:
        """Keep what is to be kept of a session's last state."""
        saved = controller.initial() if self._state is None else self._state
        self._state = controller.ended(saved, state)


class ControllerStates:
    """One state for each kind of request, for as many kinds as were seen last."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, ControllerState] = OrderedDict()

    def of(self, kind: Hashable) -> ControllerState:
        """Return the state of a kind of request; all of a kind must use equal controllers."""
        state = self._kinds.pop(kind, None)
        if state is None:
            # A new kind of request most likely meets the drafter that the last one met.
            last = next(reversed(self._kinds.values()), None)
            state = ControllerState(last.features) if last else ControllerState()
        self._kinds[kind] = state
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        return state
