"""What a verifier is granted, and when it counts as leading."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from foredraft.lease import DraftSource, Grant, LeaseEnded, LeaseFault, LedRound
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Verdict
from foredraft.types import Acceptance, Base, Proposal
from orchestrator.drive.lease import LeaseClient, LeaseStream, Reachable
from orchestrator.session.session import Session
from tests.support.orchestrator.peers import MODEL, PROMPT, config, request

SETTINGS = config(verifier_led_rounds=8, draft_deadline_ms=0.05)


def led(left: int) -> LedRound:
    base = Base("s", 0, 1, 1)
    return LedRound(DraftBlock(base, (1,)), Verdict(base, 0, (1,)), 4, left)


class Drafter:
    """A drafter's stream that others can reach."""

    def __init__(self, address: str = "host:1") -> None:
        self.address = address


class Stream:
    """It answers what it was given to answer, and keeps what it was sent."""

    def __init__(self, *answers: LedRound | LeaseEnded) -> None:
        self.answers = deque(answers)
        self.named: list[DraftSource] = []
        self.grants: list[Grant] = []

    async def use_drafter(self, source: DraftSource) -> None:
        self.named.append(source)

    async def grant(self, grant: Grant) -> None:
        self.grants.append(grant)

    async def next_led(self) -> LedRound | LeaseEnded:
        return self.answers.popleft()


def opening(session: Session) -> DraftOpen:
    return session.draft_open(Proposal.TREE, Acceptance.COUPLED)


def client(stream: Stream, rounds: int = 8) -> LeaseClient:
    """A client whose session has a verifier and a drafter that it can reach."""
    session = Session(request())
    session.verifier_opened(MODEL)
    lease = LeaseClient(session, SETTINGS.model_copy(update={"verifier_led_rounds": rounds}))
    asked = opening(session)
    session.drafter_opened(DraftOpened(MODEL, 16))
    lease.verifier_opened(stream)
    lease.drafter_opened(Drafter(), asked)
    return lease


async def test_nothing_is_sent_to_a_verifier_that_is_not_to_lead() -> None:
    stream = Stream()
    assert isinstance(stream, LeaseStream) and isinstance(Drafter(), Reachable)
    assert await client(stream).next_led(None) is None
    assert not stream.named and not stream.grants


async def test_the_lease_is_renewed_when_half_of_it_is_left() -> None:
    stream = Stream(*(led(left) for left in (7, 6, 5, 4, 7, 6)))
    lease = client(stream)
    for _ in range(6):
        await lease.next_led(lease.drafts(4, False))
    [source] = stream.named
    assert (source.address, source.open.prefix, source.ngram) == ("host:1", (), None)
    assert [grant.seq for grant in stream.grants] == [1, 2]
    assert stream.grants[0] == Grant(1, 8, 4, 50, 0)


async def test_another_length_or_drafter_is_sent_at_once() -> None:
    stream = Stream(*(led(7) for _ in range(4)))
    lease = client(stream)
    await lease.next_led(lease.drafts(4, False))
    await lease.next_led(lease.drafts(2, False))
    session = Session(request())
    lease.drafter_closed()
    lease.drafter_opened(Drafter("host:2"), opening(session))
    await lease.next_led(lease.drafts(2, False))
    await lease.next_led(lease.drafts(2, True))
    sent = [(grant.num_draft_tokens, grant.run_ahead) for grant in stream.grants]
    assert sent == [(4, False), (2, False), (2, True)]
    assert [source.address for source in stream.named] == ["host:1", "host:2"]


async def test_a_lease_is_ended_once_and_followed_until_it_has() -> None:
    stream = Stream(led(7), led(0), LeaseEnded(2))
    lease = client(stream)
    await lease.next_led(lease.drafts(4, False))
    assert isinstance(await lease.next_led(None), LedRound)
    assert await lease.next_led(None) == LeaseEnded(2)
    assert await lease.next_led(None) is None
    assert [grant.rounds for grant in stream.grants] == [8, 0]


async def test_an_end_that_crossed_a_grant_does_not_count() -> None:
    late = LeaseEnded(1, LeaseFault.LATE)
    stream = Stream(led(4), late, led(7), LeaseEnded(2, LeaseFault.LATE))
    lease = client(stream)
    await lease.next_led(lease.drafts(4, False))
    assert isinstance(await lease.next_led(lease.drafts(4, False)), LedRound)
    assert await lease.next_led(lease.drafts(4, False)) == LeaseEnded(2, LeaseFault.LATE)
    # One round is the orchestrator's, then a new lease is granted.
    assert await lease.next_led(lease.drafts(4, False)) is None
    lease.own_round_done()
    stream.answers.append(led(7))
    await lease.next_led(lease.drafts(4, False))
    assert stream.grants[-1] == Grant(3, 8, 4, 50, 0)


async def test_what_is_left_of_a_lost_verifiers_lease_is_forgotten() -> None:
    first, second = Stream(led(7)), Stream(led(7))
    lease = client(first)
    await lease.next_led(lease.drafts(4, False))
    lease.verifier_closed()
    assert await lease.next_led(lease.drafts(4, False)) is None
    lease.verifier_opened(second)
    await lease.next_led(lease.drafts(4, False))
    assert second.named == first.named and second.grants == [Grant(1, 8, 4, 50, 0)]
    # One that takes no leases is never asked to.
    lease.verifier_opened(object())
    assert await lease.next_led(lease.drafts(4, False)) is None


async def test_two_drafters_lost_in_a_row_end_all_leases() -> None:
    stream, session = Stream(), Session(request())
    lease = client(stream)

    async def lose() -> None:
        stream.answers.append(LeaseEnded(stream.grants[-1].seq + 1, LeaseFault.LOST))
        assert isinstance(await lease.next_led(lease.drafts(4, False)), LeaseEnded)
        lease.drafter_closed()
        lease.own_round_done()
        lease.drafter_opened(Drafter(), opening(session))

    stream.answers.append(led(7))
    await lease.next_led(lease.drafts(4, False))
    stream.answers.append(LeaseEnded(1, LeaseFault.LOST))
    await lease.next_led(lease.drafts(4, False))
    lease.own_round_done()
    # A round that was led since makes the count start again.
    stream.answers.append(led(7))
    await lease.next_led(lease.drafts(4, False))
    stream.answers.append(LeaseEnded(2, LeaseFault.LOST))
    assert await lease.next_led(lease.drafts(4, False)) == LeaseEnded(2, LeaseFault.LOST)
    lease.own_round_done()
    assert lease.covers_drafts
    await lose()
    assert not lease.covers_drafts
    assert await lease.next_led(lease.drafts(4, False)) is None


async def test_a_verifier_that_asks_no_drafters_is_granted_no_second_lease() -> None:
    stream = Stream(LeaseEnded(1, LeaseFault.UNSUPPORTED))
    lease = client(stream)
    await lease.next_led(lease.drafts(4, False))
    lease.own_round_done()
    assert not lease.covers_drafts and await lease.next_led(lease.drafts(4, False)) is None


async def test_plain_rounds_are_granted_without_a_drafter() -> None:
    stream = Stream(*(replace(led(left), num_draft_tokens=0) for left in (7, 4, 7)))
    lease = client(stream)
    lease.drafter_closed()
    for _ in range(3):
        await lease.next_led(lease.plain(6))
    assert not stream.named
    assert [(each.rounds, each.plain_passes) for each in stream.grants] == [(8, 6), (8, 6)]
    # No more are granted to a verifier that leads none.
    stream.answers.append(LeaseEnded(2, LeaseFault.UNSUPPORTED))
    await lease.next_led(lease.plain(6))
    lease.own_round_done()
    assert await lease.next_led(lease.plain(6)) is None


async def test_plain_rounds_go_on_where_a_verifier_asks_no_drafters() -> None:
    stream = Stream(LeaseEnded(1, LeaseFault.UNSUPPORTED), led(3))
    lease = client(stream)
    await lease.next_led(lease.drafts(4, False))
    lease.own_round_done()
    assert lease.drafts(4, False) is None
    assert isinstance(await lease.next_led(lease.plain(8)), LedRound)


async def test_a_lease_starts_at_the_round_after_the_committed_prefix() -> None:
    stream = Stream(led(7))
    session = Session(request())
    session.verifier_opened(MODEL)
    first = session.next_round(1)
    session.verdict_arrived(Verdict(first.base, 0, (7,)))
    lease = LeaseClient(session, SETTINGS)
    asked = opening(session)
    session.drafter_opened(DraftOpened(MODEL, 16))
    lease.verifier_opened(stream)
    lease.drafter_opened(Drafter(), asked)
    await lease.next_led(lease.drafts(4, False))
    assert stream.grants[0].round == 1 and len(asked.prefix) == len(PROMPT) + 1


async def test_drafts_that_need_work_here_are_covered_by_no_lease() -> None:
    stream = Stream()
    for model in (replace(MODEL, vocab_size=60), replace(MODEL, features_hash="f")):
        session = Session(request())
        session.verifier_opened(MODEL)
        lease = LeaseClient(session, SETTINGS)
        lease.verifier_opened(stream)
        lease.drafter_opened(Drafter(), opening(session))
        session.drafter_opened(DraftOpened(model, 16))
        assert not lease.covers_drafts and await lease.next_led(lease.drafts(4, False)) is None
    # Nor is one that others cannot reach, or where leases are not wanted.
    unreachable = client(stream)
    unreachable.drafter_closed()
    unreachable.drafter_opened(object(), opening(Session(request())))
    assert not unreachable.covers_drafts
    assert not client(stream, rounds=0).covers_drafts
