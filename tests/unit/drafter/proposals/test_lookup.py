"""Copying from earlier text: exact continuations, and blocks that need no pass of the model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_service.proposals.proposals import NO_GUESS, Drafted, copied_path
from drafter_service.strategies import Lookup
from foredraft.ngram.lookup import continuation

EOS = 0


def test_the_longest_match_wins_and_then_the_latest() -> None:
    assert continuation([1, 2, 3, 7, 2, 3, 8, 1, 2, 3], 2, shortest=2) == (7, 2)
    assert continuation([2, 3, 7, 2, 3, 8, 2, 3], 2, shortest=2) == (8, 2)


def test_a_match_that_is_too_short_is_not_copied() -> None:
    assert continuation([5, 3, 7, 4, 3], 2, shortest=2) == ()
    assert continuation([], 2, shortest=1) == ()
    assert continuation([4], 2, shortest=1) == ()


@given(st.lists(st.integers(1, 3), max_size=40), st.integers(1, 5), st.integers(1, 6))
def test_it_equals_a_search_by_definition(tokens: list[int], length: int, shortest: int) -> None:
    expected: tuple[int, ...] = ()
    for size in range(min(8, len(tokens) - 1), shortest - 1, -1):
        ends = [at for at in range(size, len(tokens)) if tokens[at - size : at] == tokens[-size:]]
        if ends:
            expected = tuple(tokens[ends[-1] : ends[-1] + length])
            break
    assert continuation(tokens, length, shortest) == expected


def test_a_copied_block_ends_at_the_first_eos() -> None:
    path = copied_path((4, EOS, 5, 6), 3, EOS)
    assert (path.tokens, path.generated_len, path.bonus_guess) == ((4, EOS), 1, NO_GUESS)
    path = copied_path((4, 5, 6), 2, EOS)
    assert (path.tokens, path.generated_len, path.bonus_guess) == ((4, 5), 2, 6)
    assert copied_path((4,), 2, EOS).bonus_guess == NO_GUESS


def test_lookup_alone_proposes_nothing_where_nothing_repeats() -> None:
    def copied(text: list[int], room: int) -> Drafted:
        passes = Lookup(EOS, shortest=2, max_draft_tokens=3).draft(4, text, room)
        with pytest.raises(StopIteration) as end:
            next(passes)
        block: Drafted = end.value.value
        return block

    assert copied([1, 2, 3, 4], 50) == Drafted((), 0, NO_GUESS)
    text = [1, 2, 3, 4, 5, 6, 1, 2]
    assert copied(text, 50) == Drafted((3, 4, 5), 3, 6)
    assert copied(text, 2) == Drafted((3, 4), 2, 5)
