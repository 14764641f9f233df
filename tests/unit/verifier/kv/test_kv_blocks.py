"""Blocks: taken, shared, sealed, given back; and whatever happens, none is lost or used twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from foredraft.errors import InvalidRequest, Overloaded
from tests.support.examples import examples
from verifier_service.kv.block_pool import BlockPool, Digests
from verifier_service.kv.block_table import KvBlocks

SIZE = 4


def blocks(
    total: int = 8, sessions: int = 4, overcommit: float = 1.0
) -> tuple[BlockPool, KvBlocks]:
    pool = BlockPool(total)
    return pool, KvBlocks(pool, block_tokens=SIZE, max_sessions=sessions, overcommit=overcommit)


def read(kv: KvBlocks, key: int, text: list[int], cached: int = 0) -> int:
    """Read all but the last token of a text, sharing what can be; return the tokens shared."""
    shared = kv.adopt(key, text, cached)
    assert kv.grow(key, len(text) - 1)
    kv.settle(key, text, len(text) - 1)
    return shared - cached


def test_two_texts_share_the_blocks_they_have_in_common() -> None:
    pool, kv = blocks()
    kv.reserve(1, 16)
    kv.reserve(2, 16)
    assert read(kv, 1, [*range(10), 50]) == 0
    assert read(kv, 2, [*range(10), 60, 61]) == 8
    assert kv.table(1)[:2] == kv.table(2)[:2] and kv.table(1)[2] != kv.table(2)[2]
    assert kv.shared_tokens == 8
    kv.release(1)
    assert pool.available == 5
    kv.release(2)
    assert (pool.available, pool.idle) == (8, 2)


def test_a_text_is_found_after_its_session_ended_until_its_place_is_needed() -> None:
    _, kv = blocks(total=4)
    kv.reserve(1, 16)
    read(kv, 1, [*range(9)])
    kv.release(1)
    kv.reserve(2, 16)
    assert read(kv, 2, [*range(9)]) == 8
    kv.release(2)
    kv.reserve(3, 16)
    assert read(kv, 3, [*range(100, 116)]) == 0
    kv.release(3)
    kv.reserve(4, 16)
    assert read(kv, 4, [*range(9)]) == 0


def test_the_last_token_is_always_left_to_be_fed() -> None:
    _, kv = blocks(total=9)
    for key in (1, 2, 3):
        kv.reserve(key, 9)
    read(kv, 1, [*range(9)])
    assert kv.adopt(2, [*range(8)], 0) == 4
    assert kv.adopt(3, [*range(9)], 0) == 8


def test_texts_of_other_salts_and_other_beginnings_share_nothing() -> None:
    _, kv = blocks()
    for key, salt in ((1, ""), (2, "tenant"), (3, "")):
        kv.reserve(key, 8, salt)
    read(kv, 1, [*range(9)])
    assert kv.adopt(2, [*range(9)], 0) == 0
    # The second block alone is equal.
    assert kv.adopt(3, [9, 1, 2, 3, *range(4, 9)], 0) == 0


def test_only_so_many_unused_blocks_are_kept() -> None:
    pool = BlockPool(8, most_idle=1)
    kv = KvBlocks(pool, block_tokens=SIZE, max_sessions=2)
    kv.reserve(1, 16)
    read(kv, 1, [*range(13)])
    kv.release(1)
    assert (pool.idle, pool.available) == (1, 8)


def test_a_reservation_is_refused_before_anything_is_taken() -> None:
    pool, kv = blocks(sessions=2)
    with pytest.raises(InvalidRequest, match="33 tokens"):
        kv.reserve(1, 33)
    kv.reserve(1, 20)
    with pytest.raises(Overloaded, match="12 tokens left; 16 are needed"):
        kv.reserve(2, 16)
    kv.reserve(2, 12)
    with pytest.raises(Overloaded, match="its 2 sessions"):
        kv.reserve(3, 0)
    kv.release(2)
    kv.release(2)
    assert (kv.used_tokens, kv.sessions, pool.available) == (20, 1, 8)


def test_what_a_refused_session_needs_is_wanted_until_there_is_room() -> None:
    _, kv = blocks(sessions=8)
    kv.reserve(1, 20)
    kv.reserve(2, 8)
    assert kv.wanted_tokens == 0
    with pytest.raises(Overloaded):
        kv.reserve(3, 10)
    assert kv.wanted_tokens == 12
    # It is refused again, and then something else finds room: it still wants as much.
    kv.reserve(4, 4)
    assert kv.wanted_tokens == 12
    kv.release(1)
    assert kv.wanted_tokens == 0


def test_one_request_never_takes_what_others_need() -> None:
    """At a factor of 3 a group that is alone gets three quarters, of the KV and of the sessions."""
    _, kv = blocks(total=32, sessions=8)

    def admitted(first: int, tokens: int, *groups: str) -> int:
        for key in range(first, first + 100):
            try:
                kv.reserve(key, tokens, groups=groups)
            except Overloaded:
                return key - first
        raise AssertionError

    greedy = admitted(0, 4 * SIZE, "request-a")
    assert greedy == 6
    assert admitted(100, SIZE, "request-b") == 1
    # Without a group, and in one that holds nothing yet, whatever is free can be had.
    kv.reserve(200, 4 * SIZE)
    for key in range(greedy):
        kv.release(key)
    assert admitted(300, 4 * SIZE, "request-a") == 4


def test_a_group_that_holds_nothing_may_begin_with_all_that_is_free() -> None:
    _, kv = blocks(total=8, sessions=8)
    kv.reserve(1, 8 * SIZE, groups=("request-a", "key-a"))
    with pytest.raises(Overloaded):
        kv.reserve(2, SIZE, groups=("request-b",))
    kv.release(1)
    # The tenant holds its share, whichever request asks.
    for key in (3, 4, 5):
        kv.reserve(key, 2 * SIZE, groups=(f"request-{key}", "key-a"))
    with pytest.raises(Overloaded, match="share of the verifier's KV cache"):
        kv.reserve(6, 2 * SIZE, groups=("request-6", "key-a"))
    kv.reserve(7, 2 * SIZE, groups=("request-7", "key-b"))


def test_above_an_overcommit_of_one_a_table_may_fail_to_grow() -> None:
    _, kv = blocks(total=4, overcommit=2)
    kv.reserve(1, 16)
    kv.reserve(2, 16)
    assert kv.grow(1, 12)
    assert not kv.grow(2, 8)
    assert kv.table(2) == []
    kv.drop(1)
    assert kv.grow(2, 8)
    assert kv.used_tokens == 32


def test_a_block_is_given_back_once() -> None:
    pool = BlockPool(2)
    [block] = pool.take(1)
    assert pool.take(2) == []
    pool.give([block])
    with pytest.raises(ValueError, match="no user"):
        pool.give([block])


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_digests_are_equal_exactly_where_texts_are(a: list[int], b: list[int]) -> None:
    one, other = Digests("", SIZE), Digests("", SIZE)
    for block in range(min(len(a), len(b)) // SIZE):
        end = (block + 1) * SIZE
        assert (one.of(a, block) == other.of(b, block)) == (a[:end] == b[:end])


class Interleaving(RuleBasedStateMachine):
    """Sessions over few tokens, so that texts coincide; a block's content is what was written."""

    @initialize(
        total=st.integers(4, 12), idle=st.integers(0, 12), over=st.sampled_from([1, 1.5, 3])
    )
    def start(self, total: int, idle: int, over: float) -> None:
        self.pool = BlockPool(total, idle)
        self.kv = KvBlocks(self.pool, block_tokens=SIZE, max_sessions=5, overcommit=over)
        self.texts: dict[int, list[int]] = {}
        self.cached: dict[int, int] = {}
        self.written: dict[tuple[int, int], int] = {}
        self.count = 0

    @rule(text=st.lists(st.integers(0, 1), min_size=1, max_size=20), room=st.integers(0, 20))
    def open(self, text: list[int], room: int) -> None:
        self.count += 1
        try:
            self.kv.reserve(self.count, len(text) + room, groups=[str(text[0])])
        except (Overloaded, InvalidRequest):
            return
        self.texts[self.count], self.cached[self.count] = text, 0

    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        key = self.some(data)
        if key and self.cached[key] % SIZE == 0:
            self.cached[key] = self.kv.adopt(key, self.texts[key], self.cached[key])

    @rule(data=st.data(), rows=st.integers(1, 9), kept=st.integers(0, 9))
    def verify(self, data: st.DataObject, rows: int, kept: int) -> None:
        """Feed rows, drafts among them, then truncate to what is committed."""
        key = self.some(data)
        if not key or not self.kv.grow(key, self.cached[key] + rows):
            return
        text, start = self.texts[key], self.cached[key]
        table = self.kv.table(key)
        fed = [*text[start:], *([7] * rows)][:rows]
        for at, token in enumerate(fed, start):
            self.written[table[at // SIZE], at % SIZE] = token
        self.cached[key] = min(start + min(kept, rows), len(text) - 1)
        self.cached[key] = max(self.cached[key], start)
        self.kv.settle(key, text, self.cached[key])

    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        key = self.some(data)
        if key:
            self.kv.drop(key)
            self.cached[key] = 0

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        key = self.some(data)
        if key:
            self.kv.release(key)
            del self.texts[key], self.cached[key]

    def some(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from([*self.texts] or [0]))

    @invariant()
    def every_session_finds_its_text(self) -> None:
        for key, text in self.texts.items() if hasattr(self, "kv") else ():
            table = self.kv.table(key)
            held = [self.written[table[at // SIZE], at % SIZE] for at in range(self.cached[key])]
            assert held == text[: self.cached[key]]

    @invariant()
    def no_block_is_lost(self) -> None:
        if hasattr(self, "kv"):
            used = {block for key in self.texts for block in self.kv.table(key)}
            assert len(used) + self.pool.available == self.pool.total

    def teardown(self) -> None:
        if hasattr(self, "kv"):
            for key in self.texts:
                self.kv.release(key)
            assert self.pool.available == self.pool.total
            assert self.kv.used_tokens == self.kv.sessions == self.kv.groups == 0


TestInterleaving = Interleaving.TestCase
TestInterleaving.settings = examples(150, stateful_step_count=40)
