"""Tensors in parts: chunks put together again, the choice by size, references that are checked."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft import limits
from foredraft.errors import InvalidRequest, TensorLost
from foredraft.tensors.carrier import IN_CHUNKS, is_same_node, is_same_store
from foredraft.tensors.parts import Gathered, Sender, chunked, in_one, length, read, split
from foredraft.tensors.reference import KEY_BYTES, seal, store_name, unseal
from foredraft.types import Stored
from tests.support.tensor_store import MemoryStore

KEY = bytes(range(KEY_BYTES))


@given(st.binary(max_size=50), st.integers(1, 12))
def test_chunks_are_put_together_again(data: bytes, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_TENSOR_CHUNK", step)
        gathered = Gathered("features", most=len(data))
        # Twice: the next message starts anew.
        for _ in range(2):
            chunks, last = split(data)
            assert all(len(chunk) == step for chunk in chunks) and len(last) <= step
            assert bool(last) == bool(data)
            for chunk in chunks:
                gathered.add(chunk)
            assert in_one(gathered.end(last)) == ((), data)


def test_a_part_too_many_or_too_long_is_refused() -> None:
    most = limits.MAX_TENSOR_CHUNK + 8
    cases: list[list[bytes | Stored]] = [
        [b""],
        [bytes(limits.MAX_TENSOR_CHUNK + 1)],
        [bytes(5), Stored(b"r", most)],
        [Stored(b"r", most + 1)],
    ]
    for parts in cases:
        gathered = Gathered("features", most)
        with pytest.raises(InvalidRequest) as refused:
            for part in parts:
                gathered.add(part)
        assert refused.value.param == "features"
    with pytest.raises(InvalidRequest):
        Gathered("features", most=0).end(b"1")
    # What is stored may be longer than a chunk.
    Gathered("features", most).add(Stored(b"r", most))


async def test_parts_keep_their_order_and_are_read_where_they_are() -> None:
    store = MemoryStore({b"r": b"cdef"})
    parts = (b"ab", Stored(b"r", 4), b"g")
    assert in_one(parts) == (parts, b"") and length(parts) == 7
    assert await read(store, parts) == b"abcdefg"
    with pytest.raises(TensorLost):
        await read(store, (Stored(b"r", 3),))
    with pytest.raises(TensorLost):
        await read(IN_CHUNKS, parts)


def test_only_bytes_are_cut_to_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TENSOR_CHUNK", 2)
    assert list(chunked((b"abc", Stored(b"r", 9), b"d"))) == [b"ab", b"c", Stored(b"r", 9), b"d"]


async def test_a_sender_chooses_by_size_and_reader_and_frees_at_its_end() -> None:
    held: dict[bytes, bytes] = {}
    store = MemoryStore(held, least=10)
    sender = Sender(store, "here/other node")
    assert await sender.parts(bytes(9)) == ([], bytes(9))
    [stored], last = await sender.parts(bytes(10))
    assert isinstance(stored, Stored) and stored.size == 10 and last == b""
    assert await Sender(store, "elsewhere/node").parts(bytes(10)) == ([], bytes(10))
    assert await Sender(store, "").parts(bytes(10)) == ([], bytes(10))
    store.full = True
    assert await sender.parts(bytes(10)) == ([], bytes(10))
    assert len(held) == 1
    sender.close()
    assert not held
    # Nothing is not stored, whatever pays.
    assert await Sender(MemoryStore(held, least=0), "here/node").parts(b"") == ([], b"")


async def test_what_is_being_stored_when_a_sender_ends_is_freed() -> None:
    held: dict[bytes, bytes] = {}

    class Slow(MemoryStore):
        async def put(self, data: bytes) -> bytes | None:
            await asyncio.sleep(0.01)
            return await super().put(data)

    sender = Sender(Slow(held), "here/node")
    under_way = asyncio.create_task(sender.parts(b"abc"))
    await asyncio.sleep(0)
    sender.close()
    await under_way
    assert not held


def test_stores_and_nodes_are_compared_by_name() -> None:
    assert is_same_store("a/1", "a/2") and not is_same_node("a/1", "a/2")
    assert is_same_node("a/1", "a/1")
    assert not is_same_store("a/1", "b/1")
    assert not is_same_store("", "") and not is_same_node("", "")
    one, other = store_name(KEY, "n"), store_name(KEY, "m")
    assert is_same_store(one, other) and len(one) <= limits.MAX_STORE
    assert not is_same_store(one, store_name(bytes(KEY_BYTES), "n"))


@given(st.binary(max_size=200), st.integers(0, 7), st.data())
def test_a_reference_that_was_changed_is_refused(
    content: bytes, bit: int, data: st.DataObject
) -> None:
    reference = seal(KEY, content)
    assert unseal(KEY, reference) == content
    at = data.draw(st.integers(0, len(reference) - 1))
    changed = bytearray(reference)
    changed[at] ^= 1 << bit
    cut = reference[: data.draw(st.integers(0, len(reference) - 1))]
    for forged in (bytes(changed), cut, reference + b"x", seal(bytes(KEY_BYTES), content), b""):
        with pytest.raises(TensorLost):
            unseal(KEY, forged)
