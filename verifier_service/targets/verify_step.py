"""From a pass's logits, float32 [rows, vocabulary], to what the sessions' rules make of them.

Parts are the keys of sessions, in the rows' order, and how many of the rows are theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verifier_service.rules.rules import Decision, Logits
from verifier_service.schedule.batching import Share
from verifier_service.targets.session import Session

Sessions = Mapping[int, Session]
Parts = Sequence[tuple[int, int]]


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


def shape(parts: Parts, sessions: Sessions, logits: Logits) -> dict[int, Logits]:
    """Change logits in place as the sessions ask; return each one's rows as they were."""
    raw: dict[int, Logits] = {}
    first = 0
    for key, count in parts:
        rows = raw[key] = logits[first : first + count]
        first += count
        session = sessions[key]
        if count and not session.shaper.idle:
            raw[key] = rows.copy()
            session.shaper.shape(rows, session.branches())
    return raw


def judge(
    parts: Parts, sessions: Sessions, chosen: Sequence[int | None], logits: Logits
) -> dict[int, Decision | None]:
    """Return, by key, what the rules make of the rounds; None where a row is unusable.

    chosen are the tokens drawn in the rows, None where one is not finite.
    """
    decisions: dict[int, Decision | None] = {}
    first = 0
    for key, count in parts:
        if not count:
            continue
        end = first + count
        tokens = [token for token in chosen[first:end] if token is not None]
        sound = len(tokens) == count
        decisions[key] = sessions[key].judge(tokens, logits[first:end]) if sound else None
        first = end
    return decisions
