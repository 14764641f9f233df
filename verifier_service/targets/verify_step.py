"""One forward pass and what follows it: features, logprobs, logits processors, acceptance.

Logits are float32 [rows, vocabulary]. Parts are session keys in the order of the rows, each with
the number of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from foredraft.errors import CorruptModelOutput, ForedraftError, InvalidRequest
from verifier_service.models.port import FeatureModel, Segment, TargetModel
from verifier_service.rules.rules import Decision, Logits
from verifier_service.schedule.batching import ScheduledRows
from verifier_service.targets.features import FeatureLog
from verifier_service.targets.session import Session
from verifier_service.targets.verdicts import decide

Sessions = Mapping[int, Session]
Parts = Sequence[tuple[int, int]]


class ProcessedRows(NamedTuple):
    """A session's rows after its logits processors.

    raw are the model's own logits. The first `usable` rows may be used; fault is why none may.
    """

    raw: Logits
    usable: int
    fault: InvalidRequest | None


def forward(model: TargetModel, segments: Sequence[Segment], sessions: Sequence[Session]) -> Logits:
    """Return a pass's logits; add features to the logs of the sessions that requested them."""
    if all(session.features is None for session in sessions):
        return model.forward(segments)
    rows_with_features: list[int] = []
    logs: list[tuple[FeatureLog, int, int]] = []
    end = 0
    for segment, session in zip(segments, sessions, strict=True):
        begin, end = end, end + len(segment.tokens)
        if session.features is not None:
            skipped = session.features.num_known(segment.start, end - begin)
            rows_with_features += range(begin + skipped, end)
            logs.append((session.features, skipped, end - begin - skipped))
    # A session has features only if the model makes them: engine.open.
    logits, features = cast(FeatureModel, model).forward_fused(segments, rows_with_features)
    first = 0
    for log, skipped, rows in logs:
        log.add(skipped, features[first : first + rows])
        first += rows
    return logits


def collect_prompt_logprobs(
    scheduled: Sequence[ScheduledRows], sessions: Sessions, logits: Logits
) -> Logits:
    """Give sessions the rows of their prefixes' logprobs; return the rows of their rounds."""
    if all(sessions[rows.key].prompt_logprobs is None for rows in scheduled):
        return logits
    of_rounds: list[int] = []
    first = 0
    for rows in scheduled:
        session = sessions[rows.key]
        prompt, count = session.num_prompt_rows(rows), session.num_round_rows(rows)
        if prompt:
            session.collect_prompt_logprobs(logits[first : first + prompt])
        of_rounds += range(first + prompt, first + prompt + count)
        first += prompt + count
    return logits if len(of_rounds) == first else logits[of_rounds]


def apply_logits_processors(
    parts: Parts, sessions: Sessions, logits: Logits
) -> dict[int, ProcessedRows]:
    """Process logits in place; return the raw rows, and how many may be used, by session."""
    processed: dict[int, ProcessedRows] = {}
    first = 0
    for key, count in parts:
        rows = raw = logits[first : first + count]
        first += count
        session, usable, fault = sessions[key], count, None
        if count and not session.processors.idle:
            raw = rows.copy()
            try:
                usable = session.processors.apply(rows, session.branches())
            except InvalidRequest as error:
                usable, fault = 0, error
        processed[key] = ProcessedRows(raw, usable, fault)
    return processed


def accept(
    parts: Parts,
    sessions: Sessions,
    chosen: Sequence[int | None],
    logits: Logits,
    processed: Mapping[int, ProcessedRows],
) -> dict[int, Decision | ForedraftError]:
    """Return the rules' decisions by session, or why a round ends without a verdict.

    chosen are the tokens drawn in the rows, None where logits are not finite.
    """
    decisions: dict[int, Decision | ForedraftError] = {}
    first = 0
    for key, count in parts:
        if not count:
            continue
        usable = processed[key].usable
        fault: ForedraftError | None = processed[key].fault
        rows = slice(first, first + usable)
        first += count
        tokens = [token for token in chosen[rows] if token is not None]
        if fault is None and len(tokens) < usable:
            fault = CorruptModelOutput("the target model's logits are not finite")
        decisions[key] = fault or decide(sessions[key], tokens, logits[rows])
    return decisions
