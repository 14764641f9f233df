"""A text of the target's tokens read in the drafter's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from drafter_service.bridge import reading
from drafter_service.bridge.pair import Pair
from drafter_service.bridge.reading import Reading
from drafter_service.proposals.prefix_chain import common
from foredraft.vocabulary import Vocabulary
from tests.support.examples import examples
from tests.support.tokenizers_by_hand import (
    AB,
    ABC,
    BOOK,
    DRAFTERS_PATTERN,
    E1,
    END,
    EOS,
    SPACE_A,
    T_A,
    T_B,
    T_BC,
    T_E1,
    T_E2,
    T_END,
    T_SPACE,
    TARGETS_PATTERN,
    A,
    B,
    E,
    by_hand,
    saved,
    trained,
    with_spaces,
)


def reading_of(pair: Pair, tokens: Sequence[int]) -> list[int]:
    return Reading(pair.drafter).read(pair.bytes_of(tokens))


def test_a_text_is_read_in_the_drafters_tokens(pair: Pair) -> None:
    assert reading_of(pair, [T_A, T_BC, T_SPACE, T_A]) == [ABC, SPACE_A]
    assert reading_of(pair, [T_A, T_END, T_B]) == [A, END, B]
    # A cut inside a character, or inside what would be one token.
    assert reading_of(pair, [T_A, T_E1]) == [A, E1]
    assert reading_of(pair, [T_A, T_E1, T_E2]) == [A, E]
    assert reading_of(pair, [T_A, T_B]) == [AB]


def test_bytes_that_the_drafter_lacks_are_left_out(tmp_path: Path) -> None:
    poor = Vocabulary(saved(by_hand(["a", "b"]), tmp_path))
    assert poor.write("aéb".encode()) == [1, 2]
    assert poor.write("aé".encode()[:2]) == [1]


def test_spaces_may_be_letters_and_bytes_tokens(tmp_path: Path) -> None:
    words = Vocabulary(saved(with_spaces(), tmp_path))
    a, space_a, space = (words.ids[data] for data in (b"a", b" a", b" "))
    assert words.write(b"a a") == [a, space_a]
    assert words.write(b"  a") == [space, space_a]
    assert words.write("é".encode()) == [words.ids[b"\xc3"], words.ids[b"\xa9"]]
    assert words.specials == {EOS: 0, "<unk>": 1}


@cache
def two() -> tuple[Vocabulary, Vocabulary]:
    """Two vocabularies trained on one text, split and sized differently."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        drafter = saved(trained(DRAFTERS_PATTERN, 330), Path(name) / "drafter")
        target = saved(trained(TARGETS_PATTERN, 300), Path(name) / "target")
        return Vocabulary(drafter), Vocabulary(target)


PIECES = st.lists(
    st.one_of(st.sampled_from(BOOK.split(" ")).map(str.encode), st.text().map(str.encode)),
    max_size=30,
).map(b" ".join)


@examples(150)
@given(st.lists(st.tuples(st.integers(0, 400), st.one_of(PIECES, st.binary())), max_size=8))
def test_what_is_read_says_the_text(edits: list[tuple[int, bytes]]) -> None:
    drafter, _ = two()
    kept = Reading(drafter)
    data = b""
    for cut, more in edits:
        data = data[: max(0, len(data) - cut)] + more
        assert b"".join(drafter.spelling[token] for token in kept.read(data)) == data


def test_only_the_end_of_a_text_is_read_again() -> None:
    drafter, target = two()
    written: list[int] = []

    class Watched(Vocabulary):
        def __init__(self) -> None:
            self.__dict__ = drafter.__dict__

        def write(self, data: bytes) -> list[int]:
            written.append(len(data))
            return super().write(data)

    kept, data = Reading(Watched()), (BOOK * 9).encode()
    at = 0
    for token in target.write(data):
        at += len(target.spelling[token])
        assert kept.read(data[:at]) == drafter.write(data[:at])
    assert max(written[60:]) < 4 * reading._OVERLAP * 8


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_the_common_prefix(one: list[int], other: list[int]) -> None:
    length = common(one, other)
    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length == len(one)


def test_the_last_piece_of_a_text() -> None:
    drafter, _ = two()
    for text, piece in (("sum(values", "values"), ("(größe", "größe"), ("x\n    ", "\n    ")):
        tokens = drafter.write(text.encode())
        count = drafter.last_piece(tokens)
        assert b"".join(drafter.spelling[token] for token in tokens[-count:]) == piece.encode()
    assert drafter.last_piece(drafter.write(b"values")) == 1
