"""No stream to a drafter is left behind, in whichever order its openings end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from foredraft.decoding.committed_prefix import CommittedPrefix
from foredraft.lease import DraftSource
from foredraft.messages import DraftOpen, DraftOpened
from foredraft.types import ModelInfo, Proposal, SamplingParams
from verifier_service.drafters import DraftClient, Drafters, Link
from verifier_service.linked_drafter import LinkedDrafter

OPENED = DraftOpened(ModelInfo(64, 512, "t", "exact", "d"), 8)


def source(address: str) -> DraftSource:
    return DraftSource(address, DraftOpen("s", (), SamplingParams(), Proposal.TREE, 512))


class Stream:
    """A drafter's stream that knows whether it was closed."""

    opened = OPENED

    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False

    async def close(self) -> None:
        self.closed = True


class Replica:
    """A drafter that opens a session once it may."""

    def __init__(self, address: str) -> None:
        self.address, self.may_open = address, asyncio.Event()
        self.streams: list[Stream] = []

    async def open(self, request: DraftOpen) -> Stream:
        await self.may_open.wait()
        self.streams.append(Stream(self.address))
        return self.streams[-1]


def linked_to(*replicas: Replica) -> LinkedDrafter:
    found = {replica.address: replica for replica in replicas}
    connect = cast("Callable[[str], DraftClient]", found.__getitem__)
    return LinkedDrafter(Drafters(connect), CommittedPrefix((1, 2)), lambda _: None, lambda: 0.0)


@pytest.mark.parametrize("early_first", [True, False])
async def test_what_was_opened_early_beside_a_draft_is_closed(early_first: bool) -> None:
    """A draft opens its drafter; the next one is named, and plain rounds granted, meanwhile."""
    one, other = Replica("a:1"), Replica("b:2")
    drafter, read = linked_to(one, other), list[Link]()
    drafter.use(source(one.address))
    wanted = asyncio.create_task(drafter.linked(60.0))
    await asyncio.sleep(0)
    drafter.use(source(other.address))
    drafter.open_early(read.append)
    await asyncio.sleep(0)
    for replica in (other, one) if early_first else (one, other):
        replica.may_open.set()
        await _all_that_can_run()
    assert (await wanted).source.address == one.address
    assert _open(one, other) == [one.address]
    assert [link.source.address for link in read] == [other.address] * early_first
    # The next draft is of the drafter that was named last.
    assert (await drafter.linked(60.0)).source.address == other.address
    assert _open(one, other) == [other.address]
    await drafter.close()
    assert _open(one, other) == []


def _open(*replicas: Any) -> list[str]:
    return [each.address for one in replicas for each in one.streams if not each.closed]


async def _all_that_can_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
