"""How a round ends: what a pass decides of it, what is committed, and its verdict."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.messages import Verdict
from foredraft.types import Price, Timings
from verifier_service.rules.rules import Decision, Logits
from verifier_service.targets.pending import Pending, first_nodes
from verifier_service.targets.session import Session


def decide(session: Session, chosen: Sequence[int], logits: Logits) -> Decision:
    """Return the rule's decision on the round's rows, given the token drawn in each.

    The draft's nodes without a row are left out: none stands before its parent.
    """
    assert session.pending is not None
    pending, request = session.pending, session.pending.round
    rows = min(len(chosen), 1 + len(request.draft))
    if rows - 1 < len(request.draft):
        request = first_nodes(request, rows - 1)
    decision = session.rule.decide(request, len(session.tokens), chosen[:rows], logits[:rows])
    if not pending.drafted:
        decision = _until_stop(session, pending, decision)
        _learn(session, pending, decision, rows, logits)
    return decision


def commit(
    session: Session, decision: Decision, batch_rows: int, raw: Logits, price: Price
) -> Verdict | None:
    """Commit a decision; return the verdict once the round is complete.

    raw are the model's own logits of the round's rows. Where the path is not the draft's first
    nodes, KV rows first + path[i] now belong at first + i, where first was the number of tokens
    before.
    """
    assert session.pending is not None
    pending, draft = session.pending, session.pending.round.draft
    path, token = decision
    tokens = [*(draft[node] for node in path), token]
    pending.logprobs += session.logprobs_of(raw, [0, *(1 + node for node in path)], tokens)
    plain_tokens = 0
    if pending.drafted:
        plain_tokens = 1 + session.self_draft.foreseen(tokens, price)
    if session.features is not None:
        fed = len(session.tokens) - session.cached
        session.features.keep([*range(fed), *(fed + node for node in path)])
    session.extend(tokens)
    session.cached = len(session.tokens) - 1
    pending.passes += 1
    if pending.drafted:
        pending.emitted.append(token)
        session.accepted = session.accepted.after(pending.round.expected, len(path))
        return _finished(session, pending, path, batch_rows, price, plain_tokens)
    pending.emitted += tokens
    if not _continues(session, pending, price):
        return _finished(session, pending, (), batch_rows, price)
    room = session.streams.room(len(session.tokens))
    pending.draft_itself(session.self_draft, session.tokens_left, room, price)
    return None


def _until_stop(session: Session, pending: Pending, decision: Decision) -> Decision:
    """Return a decision on the own draft without what follows its first stop token."""
    draft = pending.round.draft
    for place, node in enumerate(decision.path):
        if draft[node] in session.stop_token_ids:
            return Decision(decision.path[:place], draft[node])
    return decision


def _learn(
    session: Session, pending: Pending, decision: Decision, rows: int, logits: Logits
) -> None:
    """Give the own draft what was decided, and the rows ahead."""
    draft, ahead = pending.round.draft, logits[rows:]
    tokens = [*(draft[node] for node in decision.path), decision.token]
    draws = session.draws_ahead()[: len(ahead)] if len(ahead) else ()
    session.self_draft.decided(rows - 1, tokens, ahead, draws)


def _continues(session: Session, pending: Pending, price: Price) -> bool:
    """True while a plain round has steps, time and a place left, and no stop token."""
    return (
        len(pending.emitted) < pending.asked.plain_steps
        and not pending.took_its_passes(price.pass_s)
        and pending.compute_s < session.plain_round_s
        and not session.has_ended
    )


def _finished(
    session: Session,
    pending: Pending,
    path: tuple[int, ...],
    batch_rows: int,
    price: Price,
    plain_tokens: int = 0,
) -> Verdict:
    """End the round in flight; return its verdict, with path as the accepted nodes."""
    started = pending.arrived if pending.started is None else pending.started
    timings = Timings(
        queue_us=int(1e6 * (started - pending.arrived)),
        compute_us=int(1e6 * pending.compute_s),
        batch_rows=batch_rows,
        passes=pending.passes,
        queue_prefill_us=int(1e6 * pending.queue_prefill_s),
        compute_prefill_us=int(1e6 * pending.compute_prefill_s),
    )
    moved = () if path == tuple(range(len(path))) else path
    features = session.features
    verdict = Verdict(
        pending.asked.base,
        len(path),
        tuple(pending.emitted),
        timings,
        moved,
        tuple(pending.logprobs),
        tuple(session.prompt_logprobs or ()),
        b"" if features is None else features.take(len(session.tokens) - 1),
        session.num_cached_from_others,
        len(pending.asked.draft) - pending.num_drafted if pending.drafted else 0,
        price,
        plain_tokens,
    )
    session.pending = session.prompt_logprobs = None
    session.num_cached_from_others = 0
    session.last, session.drafted = (pending.asked, verdict), pending.drafted
    return verdict
