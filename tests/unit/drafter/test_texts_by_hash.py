"""Texts found by their hashes: each session by one text at a time, the least recent forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from drafter_service.texts.by_hash import TextsByHash, TextSession
from foredraft.texts import KnownText

A, B, C = (KnownText(3, hash) for hash in (10, 20, 30))


def session(handle: int) -> TextSession:
    return TextSession(handle, f"text-{handle}")


def test_a_text_is_taken_once() -> None:
    texts = TextsByHash(4)
    texts.keep(A, session(1))
    assert texts.take(B) is None
    assert texts.take(A) == session(1)
    assert texts.take(A) is None


def test_a_hash_of_another_length_is_another_text() -> None:
    texts = TextsByHash(4)
    texts.keep(A, session(1))
    assert texts.take(A._replace(length=4)) is None


def test_equal_texts_are_several_sessions() -> None:
    texts = TextsByHash(4)
    texts.keep(A, session(1))
    texts.keep(A, session(2))
    assert {texts.take(A), texts.take(A)} == {session(1), session(2)}
    assert texts.take(A) is None


def test_the_least_recently_kept_is_forgotten() -> None:
    texts = TextsByHash(2)
    for handle, text in enumerate((A, B, C)):
        texts.keep(text, session(handle))
    assert texts.excess() == [session(0)]
    assert texts.excess() == []
    assert texts.take(A) is None
    assert texts.take(C) == session(2)


@given(st.lists(st.tuples(st.sampled_from("kt"), st.integers(0, 3)), max_size=40))
def test_nothing_is_lost_or_found_twice(steps: list[tuple[str, int]]) -> None:
    texts, out, made = TextsByHash(3), set(), 0
    kept: set[int] = set()
    for step, hash in steps:
        if step == "k":
            texts.keep(KnownText(1, hash), session(made))
            kept.add(made)
            made += 1
        elif (found := texts.take(KnownText(1, hash))) is not None:
            out.add(found.handle)
            kept.remove(found.handle)
        for forgotten in texts.excess():
            out.add(forgotten.handle)
            kept.remove(forgotten.handle)
        assert len(kept) <= 3
    assert kept | out == set(range(made)) and not kept & out
