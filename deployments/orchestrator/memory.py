"""What was learnt in one session, for the next one of its kind to start from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, TypeVar

from deployments.orchestrator.adl import DraftLengthController

S = TypeVar("S")

_KINDS = 64


class Memory:
    """The last state of a controller that `learns`; others start anew each time.

    kept_whole is the run-ahead gate's share, None before the first session ended. features names
    those that the last drafter needed.
    """

    def __init__(self) -> None:
        self._state: Any = None
        self.kept_whole: float | None = None
        self.features = ""

    def recall(self, controller: DraftLengthController[S]) -> S:
        """Return the state to start with."""
        if self._state is None or not controller.learns:
            return controller.initial()
        state: S = self._state
        return state

    def keep(self, controller: DraftLengthController[S], state: S) -> None:
        """Take over a session's last state."""
        if controller.learns:
            self._state = state


class Memories:
    """One Memory for each kind of request, for as many kinds as were seen last."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, Memory] = OrderedDict()

    def of(self, kind: Hashable) -> Memory:
        """Return the memory of a kind of request; all of a kind must use equal controllers."""
        memory = self._kinds.setdefault(kind, Memory())
        self._kinds.move_to_end(kind)
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        return memory
