"""What a target drafts for itself, from rows that it had anyway."""

from __future__ import annotations

import pytest

from verifier_service.targets.self_drafting import Learnt, NoSelfDraft, RowsAhead


def tokens(draft, room=99):
    return draft.draft(room)[0]


def test_the_first_pass_has_rows_ahead_and_they_are_the_first_draft():
    draft = RowsAhead(3)
    assert tokens(draft) == ()
    assert draft.rows_ahead(0, 0, 99) == 3
    draft.decided(0, 0, 0, [10, 11, 12, 13])
    assert tokens(draft) == (11, 12, 13)
    assert tokens(draft, 2) == (11, 12) and tokens(draft, -1) == ()


def test_a_whole_draft_is_followed_by_its_rows_ahead():
    draft = RowsAhead(3)
    draft.decided(0, 0, 0, [10, 11, 12, 13])
    draft.decided(3, 3, 3, [11, 12, 13, 14, 15, 16, 17])
    assert tokens(draft) == (15, 16, 17)
    assert [guess.ahead for guess in draft.guesses] == [1, 2, 3]
    assert draft.rows_ahead(3, 3, 99) == 3


def test_behind_a_refused_token_the_rows_are_kept():
    draft = RowsAhead(3)
    draft.decided(0, 0, 0, [10, 11, 12, 13])
    draft.decided(3, 3, 1, [11, 22, 23, 24, 25])
    assert tokens(draft) == (23, 24, 25)
    assert {guess.ahead for guess in draft.guesses} == {0}
    # Two tokens were decided, so two are to come.
    assert draft.rows_ahead(3, 3, 99) == 2 and draft.rows_ahead(3, 3, 1) == 1


def test_the_odds_follow_what_is_accepted():
    draft = RowsAhead(4)
    for _ in range(60):
        draft.decided(0, 0, 0, [1, 2, 3, 4, 5])
        draft.decided(4, 4, 1, [2, 9, 9, 9, 9, 9, 9, 9, 9])
    draft.decided(0, 0, 0, [1, 2, 3, 4, 5])
    likely = draft.draft(99)[1]
    assert likely[0] > 0.95 and likely[1] < 0.05
    # None was reached, so nothing is known of them.
    assert likely[2] == pytest.approx(0.9 * likely[1])
    assert list(likely) == sorted(likely, reverse=True)


def test_where_rows_are_too_dear_it_pauses_and_tries_again():
    draft = RowsAhead(3)
    draft.decided(0, 0, 0, [10, 11, 12, 13])
    assert draft.rows_ahead(3, 0, 99) == 0
    draft.decided(3, 0, 0, [11])
    waited = 0
    while not draft.rows_ahead(0, 0, 99):
        assert tokens(draft) == ()
        draft.decided(0, 0, 0, [12])
        waited += 1
    assert waited == 16


def test_a_draft_that_does_not_follow_the_text_is_dropped():
    draft = RowsAhead(3)
    draft.decided(0, 0, 0, [10, 11, 12, 13])
    draft.forget()
    assert tokens(draft) == ()


def test_nothing_is_drafted_where_nothing_may():
    draft = NoSelfDraft()
    draft.decided(0, 0, 0, [1])
    draft.forget()
    assert draft.draft(9) == ((), ()) and draft.rows_ahead(0, 0, 9) == draft.most_tokens == 0


def test_a_pause_is_twice_as_long_each_time_until_a_draft_pays():
    learnt = Learnt()
    waits = []
    for _ in range(3):
        draft = RowsAhead(3, learnt)
        draft.decided(0, 0, 0, [10, 11, 12, 13])
        draft.decided(3, 0, 0, [11])
        waits.append(draft.pause)
    assert waits == [16, 32, 64]
    # Now no more is asked for than one draft token takes.
    assert RowsAhead(3, learnt).rows_ahead(0, 0, 99) == 1
    draft.decided(0, 0, 0, [10, 11, 12, 13])
    draft.decided(3, 3, 1, [11, 12, 13, 14, 15])
    assert learnt.pause == 16 and RowsAhead(3, learnt).rows_ahead(0, 0, 99) == 3


def test_a_draft_that_is_cut_is_to_be_one_token_longer():
    draft = RowsAhead(5)
    draft.decided(0, 0, 0, [10, 11, 12, 13, 14, 15])
    # Of five tokens one is verified: the next two are to have rows.
    assert draft.rows_ahead(5, 1, 99) == 2
    assert draft.rows_ahead(5, 5, 99) == 1


def test_drafts_that_nobody_paid_for_are_learnt_from_too():
    learnt = Learnt()
    for _ in range(200):
        draft = RowsAhead(2, learnt)
        draft.decided(0, 0, 0, [10, 11, 12])
        draft.decided(2, 0, 0, [99])
    assert learnt.odds[1] < 0.1
    for _ in range(200):
        draft = RowsAhead(2, learnt)
        draft.decided(0, 0, 0, [10, 11, 12])
        draft.decided(2, 0, 0, [11])
    assert learnt.odds[1] > 0.9 and RowsAhead(2, learnt).odds == learnt.odds
