import asyncio

import pytest

from drafter_service.batcher import Batcher
from drafter_service.proposals.lattice import BlockScores
from foredraft.errors import ForedraftError, InvalidRequest, Overloaded, PrefixMismatch, Unavailable
from tests.support.drafters import (
    Gated,
    ScriptedLM,
    asking,
    asking_ahead,
    counting,
    engine_of,
    opening,
)
from tests.support.waiting import DEADLINE_S


async def started(model, **options):
    batcher = Batcher(lambda: engine_of(model), options.pop("max_queue", 64))
    await batcher.start()
    return batcher


async def test_what_waits_shares_the_next_pass():
    model = Gated()
    batcher = await started(model)
    handles = [(await batcher.open(opening(f"s{i}", (1, 2))))[0] for i in range(4)]
    futures = [batcher.propose(handles[0], asking("s0", (1, 2), 2, 3))]
    await asyncio.to_thread(model.inside.wait)
    futures += [batcher.propose(h, asking(f"s{i}", (1, 2), 2, 3)) for i, h in enumerate(handles)]
    model.gate.set()
    blocks = await asyncio.gather(*futures)
    assert [len(part) for part in model.passes] == [1, 4]
    assert len({b.tokens for b in blocks}) == 1
    assert all(b.timings.compute_us > 0 for b in blocks)
    assert blocks[1].timings.queue_us > 0
    stats = batcher.stats()
    assert (stats["batches"], stats["blocks"], stats["queue"]) == (2, 5, 0)
    await batcher.stop()


async def test_one_sessions_proposals_keep_their_order():
    batcher = await started(ScriptedLM(counting))
    handle, _ = await batcher.open(opening("s", (1, 2)))
    first = batcher.propose(handle, asking("s", (1, 2, 3), 2, 2))
    second = batcher.propose(handle, asking("s", (1, 2, 3, 4), 3, 2))
    batcher.close(handle)
    third = batcher.propose(handle, asking("s", (1, 2), 2, 2))
    assert (await first).tokens == (4, 5)
    assert (await second).tokens == (5, 6)
    with pytest.raises(PrefixMismatch):
        await third
    await batcher.stop()


async def test_second_proposals_share_a_pass_too_and_closing_frees_the_session_after_them():
    model = Gated()
    batcher = await started(model)
    handles = [(await batcher.open(opening(f"s{i}", (1, 2))))[0] for i in range(3)]
    held = batcher.propose(handles[0], asking("s0", (1, 2), 2, 3))
    await asyncio.to_thread(model.inside.wait)
    firsts = [batcher.propose(h, asking(f"s{i}", (1, 2), 2, 3)) for i, h in enumerate(handles)]
    seconds = [batcher.propose(h, asking(f"s{i}", (1, 2, 3), 2, 2)) for i, h in enumerate(handles)]
    for handle in handles:
        batcher.close(handle)
    model.gate.set()
    await asyncio.gather(held, *firsts, *seconds)
    assert [len(part) for part in model.passes] == [1, 3, 3]
    async with asyncio.timeout(5):
        while batcher.stats()["sessions"]:
            await asyncio.sleep(0)
    await batcher.stop()


async def test_the_queue_is_bounded():
    model = Gated()
    batcher = await started(model, max_queue=2)
    handle, _ = await batcher.open(opening("s", (1, 2)))
    futures = [batcher.propose(handle, asking("s", (1, 2), 2, 2)) for _ in range(2)]
    with pytest.raises(Overloaded):
        batcher.propose(handle, asking("s", (1, 2), 2, 2))
    model.gate.set()
    await asyncio.gather(*futures)
    await batcher.propose(handle, asking("s", (1, 2), 2, 2))
    await batcher.stop()


def broken(prefix: tuple[int, ...], num_slots: int) -> BlockScores:
    raise ZeroDivisionError


async def test_an_engine_that_fails_fails_the_batch_and_lives():
    model = ScriptedLM(counting)
    batcher = await started(model)
    handle, _ = await batcher.open(opening("s", (1, 2)))
    model.script = broken
    with pytest.raises(ForedraftError):
        await batcher.propose(handle, asking("s", (1, 2), 2, 2))
    model.script = counting
    assert (await batcher.propose(handle, asking("s", (1, 2), 2, 2))).tokens == (3, 4)
    with pytest.raises(InvalidRequest):
        await batcher.open(opening("t", (99,)))
    await batcher.stop()
    with pytest.raises(Unavailable):
        batcher.propose(handle, asking("s", (1, 2), 2, 2))


async def test_an_open_that_nobody_awaits_any_more_is_closed():
    model = Gated()
    batcher = await started(model)
    handle, _ = await batcher.open(opening("s", (1, 2)))
    running = batcher.propose(handle, asking("s", (1, 2), 2, 2))
    await asyncio.to_thread(model.inside.wait)
    opening_task = asyncio.create_task(batcher.open(opening("t", (1, 2))))
    await asyncio.sleep(0)
    opening_task.cancel()
    model.gate.set()
    await running
    await asyncio.gather(opening_task, return_exceptions=True)
    async with asyncio.timeout(DEADLINE_S):
        while batcher.stats()["sessions"] != 1:
            await batcher.propose(handle, asking("s", (1, 2), 2, 2))
    await batcher.stop()


async def test_what_loading_raises_reaches_the_caller():
    def load():
        raise InvalidRequest("no such model")

    batcher = Batcher(load, 4)
    with pytest.raises(InvalidRequest):
        await batcher.start()
    await batcher.stop()


async def test_what_is_drafted_ahead_gives_way_to_any_other_proposal():
    model = Gated()
    batcher = await started(model)
    handles = [(await batcher.open(opening(f"s{i}", (1, 2))))[0] for i in range(3)]
    held = batcher.propose(handles[0], asking("s0", (1, 2), 2, 3))
    await asyncio.to_thread(model.inside.wait)
    dropped = batcher.propose_ahead(handles[1], asking_ahead("s1", (1, 2), ((3,),), 2))
    wanted = batcher.propose(handles[2], asking("s2", (1, 2), 2, 2))
    model.gate.set()
    assert (await wanted).tokens == (3, 4) and await dropped == ()
    assert (await held).tokens == (3, 4, 5)
    # The session is where the dropped proposal left it, and nothing else waits now.
    [block] = await batcher.propose_ahead(handles[1], asking_ahead("s1", (1, 2), ((3,),), 2))
    assert block.tokens == (4, 5)
    stats = batcher.stats()
    assert (stats["blocks"], stats["blocks_ahead"], stats["ahead_dropped"]) == (3, 1, 1)
    await batcher.stop()


async def test_what_is_drafted_ahead_is_dropped_once_its_session_has_gone_on():
    model = Gated()
    batcher = await started(model)
    handle, _ = await batcher.open(opening("s", (1, 2)))
    other, _ = await batcher.open(opening("t", (1, 2)))
    held = batcher.propose(handle, asking("s", (1, 2), 2, 3))
    await asyncio.to_thread(model.inside.wait)
    first = batcher.propose_ahead(handle, asking_ahead("s", (1, 2), ((3,),), 2))
    second = batcher.propose_ahead(handle, asking_ahead("s", (1, 2, 9), ((3,),), 2))
    closed = batcher.propose_ahead(other, asking_ahead("t", (1, 2), ((3,),), 2))
    batcher.close(other)
    model.gate.set()
    await held
    assert await first == () and await closed == () and len(await second) == 1
    assert batcher.stats()["sessions"] == 1
    await batcher.stop()


async def test_a_bad_proposal_for_outcomes_fails_alone():
    batcher = await started(ScriptedLM(counting))
    handle, _ = await batcher.open(opening("s", (1, 2)))
    with pytest.raises(PrefixMismatch):
        await batcher.propose_ahead(handle, asking_ahead("another", (1, 2), ((3,),), 2))
    assert (await batcher.propose(handle, asking("s", (1, 2), 2, 2))).tokens == (3, 4)
    await batcher.stop()
