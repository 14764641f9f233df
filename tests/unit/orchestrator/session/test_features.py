"""Features between verdicts and drafters, message by message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from foredraft import limits
from foredraft.features.wire import size
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, Verdict
from foredraft.types import Acceptance, Guess, ModelInfo, Proposal
from orchestrator.session.session import Session
from tests.support.orchestrator.peers import MODEL, PROMPT, continuation, decide, request

WIDTH = 2
TARGET = replace(MODEL, features_hash="f", features_width=WIDTH)
DRAFTER = DraftOpened(replace(TARGET, name="reader"), 8)
NEEDED = "f"


def features_of(text: Sequence[int], start: int, end: int) -> bytes:
    """Features that tell the token, and how long the text was."""
    return b"".join(bytes([text[at], 0, at, 0]) for at in range(start, end))


class Peer:
    """A verifier that tells features, and what the session knows of it."""

    def __init__(self, session: Session) -> None:
        opened = session.verify_open(8, Acceptance.COUPLED)
        session.verifier_opened(TARGET)
        self.session = session
        self.text = list(opened.prefix)
        self.asked = (opened.features_hash, opened.features_from)
        self.told = opened.features_from

    def verdict(self) -> Verdict:
        verdict = decide(self.text, self.session.next_round(1))
        if self.asked[0] != "f":
            return verdict
        end = len(self.text) - 1
        start, self.told = self.told, end
        return replace(verdict, features=features_of(self.text, start, end))

    def round(self) -> None:
        assert self.session.verdict_arrived(self.verdict()) is not None


def opened(features: str = NEEDED) -> tuple[Session, Peer]:
    session = Session(request(40), features)
    return session, Peer(session)


def attach(session: Session, drafter: DraftOpened = DRAFTER) -> DraftOpen:
    asked = session.draft_open(Proposal.ARGMAX, Acceptance.COUPLED)
    session.drafter_opened(drafter)
    return asked


def answered(session: Session, asked: Propose) -> None:
    """The drafter answers, rightly up to its second token."""
    one, two = continuation((*PROMPT, *session.generated), 2)
    tokens = (one, (two + 1) % 50)
    session.draft_arrived(asked, DraftBlock(asked.base, tokens, guesses=(Guess(1, 3, 1.0),)))


def test_a_proposal_brings_what_the_drafter_lacks_and_no_more() -> None:
    session, peer = opened()
    attach(session)
    assert peer.asked == ("f", 0) and not session.features_due
    # Nothing is known before the first verdict.
    assert session.next_draft(4) is None
    peer.round()
    sent = 0
    for _ in range(4):
        asked = session.next_draft(4)
        assert asked is not None
        text = [*PROMPT, *session.generated]
        assert asked.features == features_of(text, sent, len(text) - 1)
        sent = len(text) - 1
        answered(session, asked)
        peer.round()
    assert len(session.generated) == 9


def test_nothing_is_drafted_behind_a_predicted_prefix() -> None:
    session, peer = opened()
    attach(session)
    peer.round()
    asked = session.next_draft(4)
    assert asked is not None
    answered(session, asked)
    session.next_round(1)
    assert session.drafts_ahead(4) is None
    peer.round()
    assert session.next_draft(4) is not None


def test_another_drafter_gets_all_of_it() -> None:
    session, peer = opened()
    attach(session)
    peer.round()
    assert session.next_draft(4) is not None
    peer.round()
    session.drafter_lost()
    peer.round()
    attach(session)
    asked = session.next_draft(4)
    text = [*PROMPT, *session.generated]
    assert asked is not None and asked.features == features_of(text, 0, len(text) - 1)


def test_another_verifier_is_asked_for_the_rest() -> None:
    session, peer = opened()
    attach(session)
    peer.round()
    session.next_round(1)
    session.verifier_lost()
    peer = Peer(session)
    assert peer.asked == ("f", len(PROMPT))
    peer.round()
    asked = session.next_draft(4)
    text = [*PROMPT, *session.generated]
    assert asked is not None and asked.features == features_of(text, 0, len(text) - 1)


def test_a_verifier_that_was_not_asked_is_opened_anew_once_a_drafter_needs_it() -> None:
    session, peer = opened("")
    assert peer.asked == ("", 0)
    peer.round()
    assert not session.features_due
    attach(session)
    assert session.features_due and session.mismatch is None
    peer.round()
    assert session.next_draft(4) is None
    peer = Peer(session)
    assert peer.asked == ("f", 0) and not session.features_due
    peer.round()
    assert session.next_draft(4) is not None


@pytest.mark.parametrize("model", [MODEL, replace(TARGET, features_hash="g")])
def test_a_drafter_that_needs_others_is_refused_in_one_line(model: ModelInfo) -> None:
    session = Session(request(40), NEEDED)
    session.verify_open(8, Acceptance.COUPLED)
    session.verifier_opened(model)
    attach(session)
    assert session.mismatch == "drafter reader needs features that target scripted does not have"
    assert not session.features_due and session.next_draft(4) is None


def test_a_drafter_that_needs_none_is_sent_none() -> None:
    session, peer = opened()
    session.draft_open(Proposal.ARGMAX, Acceptance.COUPLED)
    session.drafter_opened(DraftOpened(MODEL, 8))
    asked = session.next_draft(4)
    assert asked is not None and asked.features == b"" and not session.features_due
    peer.round()
    assert session.mismatch is None


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [(b"", "must have"), (bytes(3), "must have"), (b"\x80\x7f" * 10, "not finite")],
)
def test_spoilt_features_cost_the_drafter_and_no_token(spoilt: bytes, why: str) -> None:
    session, peer = opened()
    attach(session)
    assert session.verdict_arrived(replace(peer.verdict(), features=spoilt)) is not None
    assert session.generated == continuation(PROMPT, 1)
    assert session.mismatch is not None and "features" in session.mismatch
    assert why in session.mismatch
    assert session.next_draft(4) is None and not session.features_due
    peer.round()
    # They are not asked for again.
    assert Peer(session).asked == ("", 0)


def test_what_a_session_may_hold_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.session.features.MAX_FEATURES", size(44, WIDTH))
    session, _ = opened()
    attach(session)
    assert session.mismatch == f"features of 45 tokens exceed {size(44, WIDTH)} bytes"
    assert size(limits.MAX_PREFIX // 4, 1) < limits.MAX_FEATURES
