"""The requests that a drafter's stream has not answered yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from foredraft.messages import Propose, ProposeAhead
from orchestrator.ports import DraftStream

# At once: one for predicted outcomes, and one just in time when all of those came out wrong.
MAX_OUTSTANDING = 2

Request = Propose | ProposeAhead


@dataclass(slots=True, eq=False)
class Pending:
    """One unanswered request; late once a round has waited for it in vain."""

    request: Request
    task: asyncio.Task[Any]
    sent_at: float
    late: bool = False


class Outstanding:
    """Sends requests, and hands each answer or error to `answered` unless it was given up."""

    def __init__(self, clock: Callable[[], float], answered: Callable[[Pending], None]) -> None:
        self._clock, self._answered = clock, answered
        self._pending: list[Pending] = []

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def full(self) -> bool:
        """Whether no further request may be sent."""
        return len(self._pending) >= MAX_OUTSTANDING

    @property
    def late_since(self) -> float | None:
        """When the oldest request was sent, if any of them is late."""
        late = any(pending.late for pending in self._pending)
        return self._pending[0].sent_at if late else None

    def newest(self, serves: Callable[[Request], bool]) -> Pending | None:
        """Return the newest request that serves and is not late, None if there is none."""
        for pending in reversed(self._pending):
            if not pending.late and serves(pending.request):
                return pending
        return None

    def send(self, stream: DraftStream, request: Request) -> None:
        """Send a request in a task of its own.

        It is never cancelled while the stream lives: the drafter's idea of the prefix must stay
        ours.
        """
        answer: Coroutine[Any, Any, Any]
        if isinstance(request, Propose):
            answer = stream.propose(request)
        else:
            answer = stream.propose_ahead(request)
        pending = Pending(request, asyncio.create_task(answer), self._clock())
        self._pending.append(pending)
        pending.task.add_done_callback(lambda _: self._done(pending))

    def give_up(self) -> None:
        """Expect no answers any more: the stream is left."""
        pending, self._pending = self._pending, []
        for each in pending:
            each.task.cancel()

    def _done(self, pending: Pending) -> None:
        cancelled = pending.task.cancelled()
        # Looked at, lest asyncio log that nobody did.
        _ = cancelled or pending.task.exception()
        if pending in self._pending and not cancelled:
            self._pending.remove(pending)
            self._answered(pending)
