"""The proposer that vLLM loads, held to its contract: a list for each row, by the deadline, and
never an exception, for rows without names that grow, change their places, end and begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foredraft_vllm.proposer import ForedraftProposer
from foredraft_vllm.rows import Rows
from tests.support.cluster import free_port
from tests.support.waiting import eventually
from tests.wire.test_drafter import serving, tokens_after

COUNT, MAX_LEN, VOCAB = 4, 60, 16


def vllm_config(vocab: int = VOCAB) -> Any:
    """What of vLLM's configuration a proposer reads."""
    model = SimpleNamespace(max_model_len=MAX_LEN, get_vocab_size=lambda: vocab)
    speculative = SimpleNamespace(num_speculative_tokens=COUNT)
    return SimpleNamespace(model_config=model, speculative_config=speculative)


class Batch:
    """vLLM's side: rows of tokens, which it accepts or rejects drafts for."""

    def __init__(self, proposer: ForedraftProposer, texts: Sequence[Sequence[int]]) -> None:
        self.proposer = proposer
        self.texts = [list(text) for text in texts]
        self.sampled = [[text[-1]] for text in self.texts]

    async def propose(self) -> list[list[int]]:
        tokens = np.zeros((len(self.texts) + 1, MAX_LEN), np.int32)
        for row, text in enumerate(self.texts):
            tokens[row, : len(text)] = text
        lengths = np.array([len(text) for text in self.texts])
        # The engine's thread is not the loop's that the drafter is served from.
        return await asyncio.to_thread(self.proposer.propose, self.sampled, lengths, tokens)

    async def drafted(self) -> list[list[int]]:
        """The first drafts that all rows have; sessions are opened behind a call."""
        for _ in range(200):
            found = await self.propose()
            if all(found):
                return found
            await asyncio.sleep(0.01)
        raise AssertionError("no drafts came")

    def accept(self, row: int, tokens: Sequence[int]) -> None:
        self.texts[row] += tokens
        self.sampled[row] = list(tokens)


@asynccontextmanager
async def proposing(
    port: int, vocab: int = VOCAB, **named: str
) -> AsyncIterator[ForedraftProposer]:
    environment = {
        "FOREDRAFT_DRAFTER": f"127.0.0.1:{port}",
        "FOREDRAFT_DEADLINE_MS": "5000",
    } | named
    made = await asyncio.to_thread(ForedraftProposer, vllm_config(vocab), environment)
    made.load_model()
    made.dummy_run(8)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.close)


def wanted(texts: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(tokens_after(text[-1], COUNT)) for text in texts]


async def test_each_row_gets_the_drafters_path_for_its_text() -> None:
    async with serving() as (server, _), proposing(server.port) as proposer:
        batch = Batch(proposer, [[3, 4, 5], [7, 8], [3, 4, 9]])
        assert await batch.drafted() == wanted(batch.texts)
        # One accepts all, one a part, one nothing but its own token.
        batch.accept(0, [6, 7, 8, 9, 10])
        batch.accept(1, [9, 2])
        batch.accept(2, [1])
        assert await batch.propose() == wanted(batch.texts)
        assert server.stats()["sessions"] == 3


async def test_rows_change_their_places_and_keep_their_sessions() -> None:
    async with serving() as (server, _), proposing(server.port) as proposer:
        batch = Batch(proposer, [[3, 4, 5], [7, 8], [9, 1]])
        await batch.drafted()
        batch.texts.reverse()
        batch.sampled.reverse()
        for row in range(3):
            batch.accept(row, [5])
        assert await batch.propose() == wanted(batch.texts)
        # Two with one beginning are told apart by what they grew to.
        del batch.texts[0], batch.sampled[0]
        batch.texts.append([3, 4])
        batch.sampled.append([4])
        assert await batch.drafted() == wanted(batch.texts)
        assert server.stats()["sessions"] == 4


async def test_rows_that_read_their_prompt_or_are_full_get_nothing() -> None:
    async with serving() as (server, _), proposing(server.port) as proposer:
        batch = Batch(proposer, [[3, 4, 5]])
        await batch.drafted()
        batch.texts += [[6, 7], [1 + i % 9 for i in range(MAX_LEN)]]
        batch.sampled += [[], [5]]
        assert await batch.propose() == [wanted(batch.texts)[0], [], []]
        assert await asyncio.to_thread(proposer.propose, [], np.zeros(0), np.zeros((1, 1))) == []


async def test_sessions_of_texts_that_ended_are_closed() -> None:
    async with serving() as (server, _), proposing(server.port) as proposer:
        batch = Batch(proposer, [[3, 4, 5], [7, 8]])
        await batch.drafted()
        del batch.texts[1], batch.sampled[1]
        for _ in range(33):
            await batch.propose()
        await eventually(lambda: server.stats()["sessions"] == 1)


async def test_a_drafter_that_is_late_or_gone_costs_no_more_than_the_deadline() -> None:
    async with proposing(free_port(), FOREDRAFT_DEADLINE_MS="30") as proposer:
        batch = Batch(proposer, [[3, 4, 5]])
        for _ in range(3):
            assert await batch.propose() == [[]]
    async with serving() as (server, _), proposing(server.port) as proposer:
        batch = Batch(proposer, [[3, 4, 5]])
        await batch.drafted()
        await server.stop()
        batch.accept(0, [6])
        assert await batch.propose() == [[]]
        assert await batch.propose() == [[]]


async def test_a_drafter_that_does_not_fit_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The drafter knows more tokens than the target.
    async with serving() as (server, _), proposing(server.port, vocab=8) as proposer:
        batch = Batch(proposer, [[3, 4, 5]])
        for _ in range(20):
            assert await batch.propose() == [[]]
            await asyncio.sleep(0.01)
    assert sum("cannot draft for vLLM" in record.message for record in caplog.records) == 1


async def test_nothing_that_vllm_passes_ends_its_engine() -> None:
    async with serving() as (server, _), proposing(server.port) as proposer:
        broken: Callable[..., Any] = proposer.propose
        assert broken([[1], [2]], None, None) == [[], []]
        assert broken([[1]], np.array([3]), np.full((1, 4), 99)) == [[]]


def test_a_text_is_found_by_what_it_begins_with() -> None:
    rows = Rows()

    def row(*tokens: int) -> np.ndarray[Any, Any]:
        return np.array(tokens, np.int32)

    one, other = rows.matched([(0, row(1, 2, 3)), (1, row(1, 2, 9))])
    # Their places change, and both grow.
    grown = rows.matched([(0, row(1, 2, 9, 4)), (1, row(1, 2, 3, 5))])
    assert [text.number for text in grown] == [other.number, one.number]
    assert list(grown[0].tokens) == [1, 2, 9, 4]
    [new] = rows.matched([(0, row(5))])
    assert new.number not in (one.number, other.number)
    for _ in range(40):
        rows.matched([(0, row(5))])
    assert set(rows.forgotten()) == {one, other}
