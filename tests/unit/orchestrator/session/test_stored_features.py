"""Features that a verifier stored elsewhere, on their way to drafters, message by message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foredraft.features.wire import size
from foredraft.messages import DraftOpened, Propose, Verdict
from foredraft.types import Acceptance, Part, Stored
from orchestrator.session.feature_parts import FeatureParts
from orchestrator.session.session import Session
from tests.support.orchestrator.peers import PROMPT, request
from tests.unit.orchestrator.session.test_features import (
    DRAFTER,
    NEEDED,
    TARGET,
    WIDTH,
    Peer,
    attach,
    features_of,
)

STORE = "here/1"
READER = DRAFTER._replace(tensor_store=STORE)


class Storing(Peer):
    """A verifier that stores features of at least `least` bytes, if it may."""

    def __init__(self, session: Session, least: int = 1) -> None:
        super().__init__(session)
        self.least = least
        self.store = session.verify_open(8, Acceptance.COUPLED).tensor_store
        session.verifier_opened(TARGET)

    def verdict(self) -> Verdict:
        verdict = super().verdict()
        if not self.store or len(verdict.features) < self.least:
            return verdict
        parts: tuple[Part, ...] = (Stored(verdict.features, len(verdict.features)),)
        return replace(verdict, features=b"", feature_parts=parts)


def opened(least: int = 1, store: str = STORE) -> tuple[Session, Storing]:
    session = Session(request(40), NEEDED, store=store)
    return session, Storing(session, least)


def told(sent: Propose) -> bytes:
    """What a drafter has after it read all parts: here a reference is the data itself."""
    parts = (*sent.feature_parts, sent.features)
    return b"".join(part.reference if isinstance(part, Stored) else part for part in parts)


def due(session: Session) -> bytes:
    text = [*PROMPT, *session.generated]
    return features_of(text, 0, len(text) - 1)


@pytest.mark.parametrize("least", [1, size(2, WIDTH)])
def test_references_are_passed_on_unread_and_again_to_the_next_drafter(least: int) -> None:
    session, peer = opened(least)
    attach(session, READER)
    found = b""
    for _ in range(4):
        peer.round()
        sent = session.next_draft(4)
        assert sent is not None
        found += told(sent)
        assert found == due(session)
    session.drafter_lost()
    peer.round()
    attach(session, READER)
    again = session.next_draft(4)
    assert again is not None and told(again) == due(session)
    assert any(isinstance(part, Stored) for part in again.feature_parts)
    # What came in bytes goes on in one piece.
    assert len(again.feature_parts) == (5 if least == 1 else 2)


def test_what_a_drafter_could_not_read_comes_again_in_chunks() -> None:
    session, peer = opened()
    attach(session, READER)
    peer.round()
    assert session.next_draft(4) is not None
    assert session.allows_lease
    session.features_lost()
    session.drafter_lost()
    attach(session, READER)
    assert session.features_due and session.mismatch is None and not session.allows_lease
    peer.round()
    assert session.next_draft(4) is None
    peer = Storing(session)
    assert peer.store == "" and peer.asked == ("f", 0) and not session.features_due
    peer.round()
    sent = session.next_draft(4)
    assert sent is not None and sent.features == due(session) and not sent.feature_parts


def test_a_loss_that_is_not_ours_to_repair_asks_nothing_again() -> None:
    session, peer = opened(least=1 << 20)
    attach(session, READER)
    peer.round()
    session.features_lost()
    assert not session.features_due


@pytest.mark.parametrize("store", ["", "elsewhere/1"])
def test_a_drafter_of_another_store_gets_what_it_can_read(store: str) -> None:
    session, peer = opened()
    peer.round()
    attach(session, READER._replace(tensor_store=store))
    assert session.features_due
    assert Storing(session).store == store


def test_another_node_reads_the_same_store() -> None:
    session, peer = opened()
    peer.round()
    attach(session, READER._replace(tensor_store="here/2"))
    sent = session.next_draft(4)
    assert sent is not None and sent.feature_parts and not session.features_due


@pytest.mark.parametrize(("store", "size_off", "why"), [("", 0, "in chunks"), (STORE, 1, "bytes")])
def test_what_was_stored_wrongly_costs_the_drafter_and_no_token(
    store: str, size_off: int, why: str
) -> None:
    session, peer = opened(store=store)
    attach(session, DraftOpened(READER.model, 8, store))
    verdict = peer.verdict()
    data = verdict.features or due(session)
    stored = Stored(b"r", size(len(PROMPT), WIDTH) + size_off)
    assert data
    spoilt = replace(verdict, features=b"", feature_parts=(stored,))
    assert session.verdict_arrived(spoilt) is not None
    assert session.mismatch is not None and why in session.mismatch
    assert session.next_draft(4) is None and not session.features_due


def test_parts_are_cut_in_bytes_alone() -> None:
    parts = FeatureParts()
    parts.add(b"abc", b"", b"d", Stored(b"r", 10), b"ef")
    assert parts.stored
    assert parts.between(1, 15) == (b"bcd", Stored(b"r", 10), b"e")
    assert parts.between(4, 14) == (Stored(b"r", 10),)
    assert parts.between(0, 2) == (b"ab",) and parts.between(2, 2) == ()
    parts.clear()
    assert not parts.stored and parts.between(0, 0) == ()
