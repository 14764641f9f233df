"""How many predicted outcomes a verifier names to a drafter."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from foredraft.decoding.draft_planner import AheadRequest
from foredraft.decoding.drafter_view import DrafterView
from foredraft.errors import Unavailable
from foredraft.lease import DraftSource
from foredraft.messages import DraftBlock, DraftOpen, DraftOpened, Propose, ProposeAhead
from foredraft.types import Base, ModelInfo, Proposal, SamplingParams
from verifier_service.drafters import Drafters, Link

OPENED = DraftOpened(ModelInfo(64, 512, "t", "exact", "d"), 8)
SOURCE = DraftSource("host:1", DraftOpen("s", (), SamplingParams(), Proposal.TREE, 512))


class Stream:
    """A drafter with room for so many blocks."""

    opened = OPENED

    def __init__(self, room: int | None) -> None:
        self.room = room

    async def propose(self, request: Propose) -> DraftBlock:
        raise AssertionError

    async def propose_ahead(self, request: ProposeAhead) -> tuple[DraftBlock, ...]:
        if self.room is None:
            raise Unavailable("lost")
        return tuple(DraftBlock(request.base, ()) for _ in request.outcomes[: self.room])

    async def close(self) -> None:
        pass


async def outcomes_after(link: Link, stream: Stream, room: int | None) -> int:
    """How many outcomes are named after a request for as many as now."""
    stream.room = room
    tokens = tuple((token,) for token in range(link.outcomes))
    request = ProposeAhead(Base("s", 0, 1, 7), 1, (), 8, tokens)
    ahead = link.send_ahead(AheadRequest(request, DrafterView(OPENED, 1)))
    await asyncio.wait({ahead.answer})
    await asyncio.sleep(0)
    return link.outcomes


async def test_as_many_outcomes_are_named_as_the_drafter_has_room_for() -> None:
    opening = DraftOpen("s", (), SamplingParams(), Proposal.TREE, 512, num_guesses=32)
    stream = Stream(None)
    link = Link(DraftSource("host:1", opening), stream, 1)
    assert link.outcomes == 32
    assert await outcomes_after(link, stream, 6) == 6
    # All of them were made: there may be room for more.
    assert await outcomes_after(link, stream, 32) == 12
    assert await outcomes_after(link, stream, 32) == 24
    assert await outcomes_after(link, stream, 32) == 32
    # Dropped, for other sessions' proposals: a few are tried again.
    assert await outcomes_after(link, stream, 0) == 4
    assert await outcomes_after(link, stream, None) == 4
    few = Link(DraftSource("host:1", replace(opening, num_guesses=1)), stream, 1)
    assert await outcomes_after(few, stream, 0) == 1


async def test_a_drafter_is_known_to_have_the_text_it_was_opened_with() -> None:
    """Not that of the moment at which it answered: the first token is decided meanwhile."""
    text = [5, 6, 7]

    class Client:
        async def open(self, request: DraftOpen) -> Stream:
            text.append(8)
            assert request.prefix == (5, 6, 7)
            return Stream(0)

        async def close(self) -> None:
            raise AssertionError

        def retire(self) -> None:
            raise AssertionError

    link = await Link.open(Drafters(lambda _: Client()), SOURCE, text)
    assert link.view == DrafterView(OPENED, 3)
