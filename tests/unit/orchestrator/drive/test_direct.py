"""What a verifier is told of direct rounds, and when it counts as leading."""

from __future__ import annotations

from collections import deque

from foredraft.lease import Direct, DirectEnded, DirectFault, DirectRound, DraftSource
from foredraft.types import Base, DraftBlock, DraftOpen, Proposal, SamplingParams, Verdict
from orchestrator.drive.lease import DirectStream, Lead, Order


def source() -> DraftSource:
    return DraftSource("host:1", DraftOpen("s", (), SamplingParams(), Proposal.TREE, 9))


def order(length: int = 4, rounds: int = 8, drafter: DraftSource | None = None) -> Order:
    return Order(drafter or SOURCE, length, rounds, 50)


def told(left: int) -> DirectRound:
    base = Base("s", 0, 1, 1)
    return DirectRound(DraftBlock(base, ()), Verdict(base, 0, (1,)), 0, left)


SOURCE = source()


class Stream:
    """It tells what it was given to tell, and keeps what it was told."""

    def __init__(self, *tells: DirectRound | DirectEnded) -> None:
        self.tells = deque(tells)
        self.attached: list[DraftSource] = []
        self.allowed: list[Direct] = []

    async def attach(self, source: DraftSource) -> None:
        self.attached.append(source)

    async def allow(self, direct: Direct) -> None:
        self.allowed.append(direct)

    async def next_direct(self) -> DirectRound | DirectEnded:
        return self.tells.popleft()


async def test_nothing_is_said_to_a_verifier_that_is_not_to_lead() -> None:
    stream = Stream()
    assert isinstance(stream, DirectStream)
    assert await Lead(stream).follow(None, 0) is None
    assert not stream.attached and not stream.allowed


async def test_what_is_allowed_is_renewed_when_half_of_it_is_left() -> None:
    stream = Stream(*(told(left) for left in (7, 6, 5, 4, 7, 6)))
    lead = Lead(stream)
    for _ in range(6):
        await lead.follow(order(), 3)
    assert stream.attached == [SOURCE]
    assert [allowed.order for allowed in stream.allowed] == [1, 2]
    assert stream.allowed[0] == Direct(1, 8, 4, 50, 3)


async def test_another_length_or_drafter_is_said_at_once() -> None:
    stream = Stream(*(told(7) for _ in range(3)))
    lead = Lead(stream)
    await lead.follow(order(), 0)
    await lead.follow(order(2), 0)
    other = source()
    await lead.follow(order(2, drafter=other), 0)
    assert [allowed.num_tokens for allowed in stream.allowed] == [4, 2]
    assert stream.attached == [SOURCE, other]


async def test_it_is_asked_to_stop_once_and_heard_until_it_has() -> None:
    stream = Stream(told(7), told(0), DirectEnded(2))
    lead = Lead(stream)
    await lead.follow(order(), 0)
    assert isinstance(await lead.follow(None, 0), DirectRound)
    assert await lead.follow(None, 0) == DirectEnded(2)
    assert await lead.follow(None, 0) is None
    assert [allowed.rounds for allowed in stream.allowed] == [8, 0]


async def test_an_end_that_crossed_an_order_does_not_count() -> None:
    late = DirectEnded(1, DirectFault.LATE)
    stream = Stream(told(4), late, told(7), DirectEnded(2, DirectFault.LOST))
    lead = Lead(stream)
    await lead.follow(order(), 0)
    assert isinstance(await lead.follow(order(), 0), DirectRound)
    assert await lead.follow(order(), 0) == DirectEnded(2, DirectFault.LOST)
    # It has to be told anew after an end.
    stream.tells.append(told(7))
    await lead.follow(order(), 5)
    assert stream.allowed[-1] == Direct(3, 8, 4, 50, 5)
