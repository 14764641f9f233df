"""How a round starts: asked for, asked for again, or begun by the engine itself."""

from __future__ import annotations

from foredraft.errors import InvalidRequest, PrefixMismatch
from foredraft.limits import MAX_PLAIN_STEPS
from foredraft.messages import Round, Verdict
from foredraft.types import Base, Price
from verifier_service.schedule.admission import check_round
from verifier_service.targets.pending import NextPlain, Pending
from verifier_service.targets.session import Session


def admit(
    session: Session,
    request: Round,
    vocab_size: int,
    now: float,
    price: Price,
    following: NextPlain | None = None,
) -> Verdict | None:
    """Start a round; return the verdict again if it repeats the last one.

    A round that `go_on` began is claimed. Raise InvalidRequest or PrefixMismatch, leaving the
    session as it was.
    """
    pending = session.pending
    if session.last is not None and session.last[0] == request:
        if pending is None:
            session.following = following
            go_on(session, now, price)
        return session.last[1]
    if pending is not None and not pending.claimed and pending.asked == request:
        pending.claimed, session.following = True, following
        return None
    if pending is not None:
        raise InvalidRequest("a round is in flight; rounds go one at a time", param="round")
    _check(session, request, vocab_size)
    session.preempted = False
    if request.no_features:
        session.features = None
    session.pending, session.following = _begun(session, request, now, price), following
    return None


def go_on(session: Session, now: float, price: Price) -> bool:
    """Begin the plain round that is wanted after the last one; return whether it is begun.

    It is what `admit` would be asked for next, so that nothing but its start differs.
    """
    following, session.following = session.following, None
    if following is None or not following.wanted or session.last is None or session.has_ended:
        return False
    number = session.last[0].base.round + 1
    base = Base(session.session_id, number, len(session.tokens), session.prefix_hash)
    steps = min(MAX_PLAIN_STEPS, session.tokens_left)
    request = Round(base, (), steps, plain_passes=following.passes)
    session.pending = _begun(session, request, now, price)
    session.pending.claimed = False
    following.begun = True
    return True


def _check(session: Session, request: Round, vocab_size: int) -> None:
    """Raise InvalidRequest or PrefixMismatch where a round is not one of the session's."""
    base, length = request.base, len(session.tokens)
    if base.session_id != session.session_id:
        raise InvalidRequest("base names another session", param="base.session_id")
    if (base.prefix_len, base.prefix_hash) != (length, session.prefix_hash):
        raise PrefixMismatch(
            f"base is a prefix of {base.prefix_len} tokens; "
            f"this session holds another one, of {length}",
            param="base",
        )
    check_round(request, vocab_size, session.max_draft, session.rule.trees)
    if session.tokens_left <= 0:
        raise InvalidRequest("max_new_tokens are committed already", param="max_new_tokens")
    most = session.streams.length
    if length + len(request.draft) + 1 > most:
        raise InvalidRequest(f"prefix and draft exceed the text's {most} tokens", param="draft")


def _begun(session: Session, request: Round, now: float, price: Price) -> Pending:
    # The pass that reads the rest of a prefix has rows enough.
    left = 1 if session.needs_prefill else session.tokens_left
    room = session.streams.room(len(session.tokens))
    return Pending.of(request, now, session.self_draft, left, room, price)
