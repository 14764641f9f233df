"""A session driven by hand: opened on both sides, asked, answered, committed."""

from __future__ import annotations

from foredraft.decoding.outcomes import outcomes_of
from foredraft.messages import DraftBlock, DraftOpened, Propose, ProposeAhead, Verdict
from foredraft.types import Acceptance, Guess, Proposal
from orchestrator.session.session import Session
from tests.support.orchestrator.peers import MODEL, request

OPENED = DraftOpened(MODEL, 16)


def opened_session(max_new: int = 20, **fields: object) -> Session:
    session = Session(request(max_new, **fields))
    session.verifier_opened(MODEL)
    session.draft_open(Proposal.ARGMAX, Acceptance.COUPLED)
    session.drafter_opened(OPENED)
    return session


def ask(session: Session, length: int) -> Propose:
    asked = session.next_draft(length)
    assert asked is not None
    return asked


def answer(asked: Propose, *tokens: int, bonus: int = -1) -> tuple[Propose, DraftBlock]:
    guesses = (Guess(len(tokens) - 1, bonus, 1.0),) if bonus >= 0 else ()
    return asked, DraftBlock(asked.base, tokens, generated_len=len(tokens), guesses=guesses)


def answer_ahead(
    asked: ProposeAhead, *tokens: int, number: int = 0
) -> tuple[ProposeAhead, tuple[DraftBlock, ...]]:
    """The answer for the outcome of a number."""
    base = outcomes_of(asked)[number].base
    return asked, (DraftBlock(base, tokens, generated_len=len(tokens)),)


def commit(session: Session, *tokens: int) -> None:
    """Let the session commit tokens by a plain round."""
    asked = session.next_round(len(tokens))
    assert session.verdict_arrived(Verdict(asked.base, 0, tokens)) is not None
