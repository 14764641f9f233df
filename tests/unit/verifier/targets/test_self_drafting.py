"""What a target drafts for itself, from rows that it had anyway and from its text's bigrams."""

from __future__ import annotations

import pytest

from foredraft.decoding.tree import ROOT, depths
from foredraft.layout import Layout
from verifier_service.targets.followers import Followers
from verifier_service.targets.guess_odds import MOST_AHEAD
from verifier_service.targets.guess_tree import GuessTree
from verifier_service.targets.self_drafting import (
    Learnt,
    NoSelfDraft,
    OwnTree,
)

# One token is given, and all others follow by position.
LAYOUT = Layout(2000, (0,))


class Clock:
    """A second later each time that it is read."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def tree(most=8, learnt=None, branches=True, prefix=(1,), clock=None):
    own = OwnTree(most, Followers(LAYOUT), learnt or Learnt(), branches, best_of, clock or Clock())
    own.extend(prefix)
    return own


def best_of(ahead, draws, count):
    """Rows ahead are given by their likeliest tokens."""
    assert len(ahead) == len(draws)
    return [row[:count] for row in ahead]


def passed(own, tokens, ahead=(), drafted=0):
    own.decided(drafted, tokens, ahead, [None] * len(ahead))
    own.extend(tokens)


def test_the_first_pass_has_rows_ahead_and_their_tokens_are_the_first_draft():
    own = tree(5)
    assert own.draft(9) == GuessTree()
    assert own.rows_ahead(0, 99) == MOST_AHEAD
    passed(own, [10], [[11, 12], [21, 22]])
    draft = own.draft(9)
    roots = [draft.tokens[i] for i, parent in enumerate(draft.parents) if parent == ROOT]
    assert roots == [11, 12]
    assert {draft.tokens[i] for i, at in enumerate(depths(draft.parents)) if at == 2} == {21, 22}
    assert len(draft.tokens) == 5


def test_parents_come_first_and_none_is_likelier_than_the_one_before():
    own = tree(64)
    for _ in range(20):
        passed(
            own, [10], [[11, 12, 13, 14], [21, 22, 23], [31, 32]], drafted=len(own.draft(9).guesses)
        )
    draft = own.draft(9)
    assert all(parent < node for node, parent in enumerate(draft.parents))
    assert list(draft.expected) == sorted(draft.expected, reverse=True)
    assert all(
        chance < draft.expected[parent]
        for chance, parent in zip(draft.expected, draft.parents, strict=True)
        if parent != ROOT
    )


@pytest.mark.parametrize("depth", [-1, 0, 1, 2, 3])
def test_no_branch_is_deeper_than_there_is_room(depth):
    own = tree(64)
    passed(own, [10], [[11, 12], [21, 22], [31, 32]])
    draft = own.draft(depth)
    assert max(depths(draft.parents), default=0) == max(0, min(depth, 3))
    assert bool(draft.tokens) == (depth > 0)


def test_what_is_decided_takes_rows_away():
    own = tree()
    passed(own, [10], [[11], [21], [31]])
    assert own.draft(9).tokens == (11, 21, 31)
    # Its rows ahead begin with the token after the next: two tokens are known by the row before.
    passed(own, [11, 22], [[23], [33], [43]], drafted=3)
    assert own.draft(9).tokens == (33, 43)


def test_without_branches_the_draft_is_a_path():
    own = tree(branches=False)
    passed(own, [10], [[11, 12, 13], [21, 22], [31]])
    draft = own.draft(9)
    assert (draft.tokens, draft.parents) == ((11, 21, 31), (-1, 0, 1))


def test_the_texts_own_bigrams_are_guesses_too():
    own = tree(prefix=(1, 5, 6, 7, 5))
    # 6 came after 5, and 7 after 6.
    assert own.draft(9).tokens == (6, 7, 5, 6, 7, 5, 6, 7)
    passed(own, [6], [[9]], drafted=1)
    draft = own.draft(9)
    assert {token for token, p in zip(draft.tokens, draft.parents, strict=True) if p == ROOT} == {
        7,
        9,
    }


def test_a_bigram_follows_its_parent_in_the_tree():
    own = tree(16, prefix=(1, 5, 6, 8, 5))
    passed(own, [8], [[5, 2], [7]])
    draft = own.draft(2)
    below = {
        (draft.tokens[parent], token)
        for token, parent in zip(draft.tokens, draft.parents, strict=True)
        if parent != ROOT
    }
    assert (5, 8) in below and (5, 6) in below and (2, 7) in below and (2, 6) not in below


def test_the_odds_follow_what_was_right():
    own = tree(4)
    for _ in range(100):
        passed(own, [3], [[9, 3], [9, 3]], drafted=len(own.draft(1).guesses))
    draft = own.draft(1)
    chances = dict(zip(draft.tokens, draft.expected, strict=True))
    # 3 also came after 3, always.
    assert chances[3] > 0.9 and chances[9] < 0.1


def test_guesses_that_nobody_paid_for_are_learnt_from_and_others_begin_with_that():
    learnt = Learnt()
    for number in range(60):
        own = tree(4, learnt)
        passed(own, [100], [[10 + number, 2]])
        passed(own, [10 + number], drafted=0)
    own = tree(4, learnt)
    passed(own, [100], [[50, 51]])
    assert own.draft(1).expected[0] > 0.8


def test_where_rows_are_too_dear_it_pauses_and_tries_again():
    own = tree(3)
    passed(own, [10], [[11], [21]])
    own.draft(9)
    assert own.rows_ahead(0, 99) == 0 and own.rows_ahead(1, 99) == MOST_AHEAD
    assert own.rows_ahead(1, 1) == 1 and own.rows_ahead(1, -1) == 0
    passed(own, [77], drafted=0)
    waited = 0
    while not own.rows_ahead(0, 99):
        waited += 1
        own.draft(9)
        passed(own, [100 + waited])
    assert waited == 16


def test_a_pause_is_twice_as_long_each_time_until_a_draft_pays():
    learnt, waits = Learnt(), []
    for _ in range(6):
        learnt.sessions = 0
        own = tree(3, learnt)
        passed(own, [10], [[11]])
        own.draft(9)
        passed(own, [12], drafted=0)
        waits.append(own.pause)
    learnt.sessions = 0
    assert waits == [16, 32, 64, 128, 256, 256]
    own = tree(3, learnt)
    passed(own, [13], [[14]])
    own.draft(9)
    passed(own, [14, 15], drafted=1)
    assert learnt.pause == 16


def test_where_nothing_is_bought_nothing_is_offered_for_ever_more_passes():
    own, waits = tree(3, prefix=(1, 5, 6, 5)), []
    for _ in range(8):
        assert own.draft(9).guesses
        passed(own, [6, 5], drafted=0)
        waits.append(own.quiet)
        while own.quiet:
            assert not own.draft(9).guesses and own.rows_ahead(0, 99) == 0
            passed(own, [6, 5])
    assert waits == [2, 4, 8, 16, 32, 64, 64, 64]
    for shorter in (32, 16, 8, 4, 2, 2):
        own.draft(9)
        passed(own, [6, 5], drafted=1)
        assert own.learnt.quiet == shorter


def test_a_pause_does_not_follow_where_bigrams_alone_are_bought():
    own = tree(3, prefix=(1, 5, 6, 7, 5))
    own.draft(9)
    assert own.rows_ahead(1, 99) == MOST_AHEAD
    passed(own, [6, 9], [[1], [2], [3]], drafted=1)
    assert own.pause == 0


def test_a_draft_grows_with_what_is_bought():
    own = tree(64)
    sizes: list[int] = []
    for _ in range(6):
        passed(own, [3], [list(range(10, 74))] * 3, drafted=sizes[-1] if sizes else 0)
        sizes.append(len(own.draft(9).tokens))
    assert sizes == sorted(sizes) and sizes[0] < 16 and sizes[-1] == 64


def test_the_time_of_guesses_and_drafts_is_followed_where_rows_are_ahead():
    own = tree()
    passed(own, [10])
    own.draft(9)
    assert own.beside_s == 0
    bought = 0
    for _ in range(200):
        passed(own, [10], [[11, 12]], drafted=bought)
        bought = len(own.draft(9).guesses)
    # Each reads the clock twice: a second for the guesses, one for the draft.
    assert own.beside_s == pytest.approx(2.0, abs=0.01)


def test_where_sessions_rest_a_new_one_does_and_one_of_eight_tries():
    learnt = Learnt(pause=64, quiet=32)
    found = [(own.pause, own.quiet) for own in (tree(3, learnt) for _ in range(17))]
    assert [at for at, each in enumerate(found) if each == (0, 0)] == [0, 8, 16]
    assert set(found) == {(0, 0), (64, 32)}
    assert {tree(3, Learnt(sessions=at)).quiet for at in range(9)} == {0}


def test_after_a_rest_no_guess_is_of_a_row_before_it():
    own = tree(prefix=(1, 5, 6, 5))
    assert own.draft(9).guesses
    passed(own, [7], [[11], [12], [13]], drafted=0)
    for token in (8, 9):
        assert own.draft(9) == GuessTree()
        passed(own, [token])
    assert own.quiet == 0 and own.draft(9) == GuessTree()
    passed(own, [5])
    assert set(own.draft(1).tokens) == {6, 7}


def test_guesses_that_do_not_follow_the_text_are_dropped():
    own = tree(3)
    passed(own, [10], [[11], [21]])
    own.draft(9)
    own.forget()
    assert own.draft(9) == GuessTree() and own.rows_ahead(0, 99) == MOST_AHEAD


def test_nothing_is_drafted_where_nothing_may():
    own = NoSelfDraft()
    passed(own, [1])
    own.forget()
    assert own.draft(9) == GuessTree() and own.rows_ahead(0, 9) == own.beside_s == 0
