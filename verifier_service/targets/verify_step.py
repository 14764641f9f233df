"""From a pass's logits, float32 [rows, vocabulary], to what the sessions' rules make of them.

Parts are the keys of sessions, in the rows' order, and how many of the rows are theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest
from verifier_service.rules.rules import Decision, Logits
from verifier_service.schedule.batching import Share
from verifier_service.targets.session import Session

Sessions = Mapping[int, Session]
Parts = Sequence[tuple[int, int]]


class Shaped(NamedTuple):
    """A session's rows as the model gave them, how many of them may be used, the first ones, and
    why none may, if so.
    """

    raw: Logits
    usable: int
    fault: InvalidRequest | None


def hear(shares: Sequence[Share], sessions: Sessions, logits: Logits) -> Logits:
    """Show sessions the rows that tell of their prefixes; return the deciding rows."""
    deciding: list[int] = []
    first = 0
    for share in shares:
        session = sessions[share.key]
        heeded, count = session.heeded(share), session.deciding(share)
        if heeded:
            session.hear(logits[first : first + heeded])
        deciding += range(first + heeded, first + heeded + count)
        first += heeded + count
    return logits if len(deciding) == first else logits[deciding]


def shape(parts: Parts, sessions: Sessions, logits: Logits) -> dict[int, Shaped]:
    """Change logits in place as the sessions ask; return each one's rows as they were."""
    shaped: dict[int, Shaped] = {}
    first = 0
    for key, count in parts:
        rows = raw = logits[first : first + count]
        first += count
        session, usable, fault = sessions[key], count, None
        if count and not session.shaper.idle:
            raw = rows.copy()
            try:
                usable = session.shaper.shape(rows, session.branches())
            except InvalidRequest as error:
                usable, fault = 0, error
        shaped[key] = Shaped(raw, usable, fault)
    return shaped


def judge(
    parts: Parts,
    sessions: Sessions,
    chosen: Sequence[int | None],
    logits: Logits,
    shaped: Mapping[int, Shaped],
) -> dict[int, Decision | ForedraftError]:
    """Return, by key, what the rules make of the rounds, or why they end without a verdict.

    chosen are the tokens drawn in the rows, None where one is not finite.
    """
    decisions: dict[int, Decision | ForedraftError] = {}
    first = 0
    for key, count in parts:
        if not count:
            continue
        usable = shaped[key].usable
        fault: ForedraftError | None = shaped[key].fault
        rows = slice(first, first + usable)
        first += count
        tokens = [token for token in chosen[rows] if token is not None]
        if fault is None and len(tokens) < usable:
            fault = CorruptModelOutput("the target model's logits are not finite")
        decisions[key] = fault or sessions[key].judge(tokens, logits[rows])
    return decisions
