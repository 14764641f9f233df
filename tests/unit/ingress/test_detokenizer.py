"""Text and stop strings do not depend on how tokens are grouped, nor on UTF-8 boundaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.ingress.stream.detokenizer import TextStream
from tests.support.tokenizers_by_hand import byte_tokenizer

TOKENIZER = byte_tokenizer()


def run(text: str, stop: tuple[str, ...] = ()) -> tuple[str, bool]:
    stream = TextStream(TOKENIZER, stop)
    sent = ""
    for token in TOKENIZER.encode(text).ids:
        piece = stream.feed(token)
        sent += piece.text
        if piece.stopped:
            return sent, True
    last = stream.finish()
    return sent + last.text, last.stopped


@given(st.text(max_size=40))
def test_all_text_comes_out(text: str) -> None:
    assert run(text) == (text, False)


@given(st.text(alphabet="ab¤", max_size=30), st.lists(st.text("ab¤", min_size=1, max_size=3)))
def test_stop_strings_cut_at_the_first_occurrence(text: str, stops: list[str]) -> None:
    sent, stopped = run(text, tuple(stops))
    # The first stop to be complete wins; of several completed by one token, the leftmost.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert stopped == bool(ends)
    if not ends:
        assert sent == text
    else:
        first = min(ends)
        starts = [text[:first].find(stop) for stop in stops if stop in text[:first]]
        assert sent == text[: min(starts)]


def test_text_that_may_begin_a_stop_is_held_back() -> None:
    stream = TextStream(TOKENIZER, ("END",))
    a, e, n, x = (TOKENIZER.encode(char).ids[0] for char in "aENx")
    assert [stream.feed(t).text for t in (a, e, n, x)] == ["a", "", "", "ENx"]


def test_incomplete_character_is_held_back_then_replaced() -> None:
    first, second = TOKENIZER.encode("é").ids
    stream = TextStream(TOKENIZER)
    assert stream.feed(first).text == ""
    assert stream.feed(second).text == "é"
    assert stream.feed(first).text == ""
    assert stream.finish().text == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("stop", ["aa", "a"])
def test_overlapping_stop(stop: str) -> None:
    assert run("baaa", (stop,)) == ("b", True)


def test_the_first_min_tokens_tokens_end_nothing() -> None:
    stream = TextStream(TOKENIZER, ("ab",), min_tokens=3)
    ids = TOKENIZER.encode("abcab").ids
    assert [stream.feed(token) for token in ids[:3]] == [(c, False) for c in "abc"]
    assert [stream.feed(token) for token in ids[3:]] == [("", False), ("", True)]
