"""Draft trees in a session: what is sent, committed, labelled, trimmed and predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foredraft.errors import CorruptModelOutput
from foredraft.messages import DraftBlock, Propose, Round, Verdict
from foredraft.types import Guess, Origin
from orchestrator.session.session import Session
from tests.support.orchestrator.sessions import ask, commit, opened_session

#  prefix - 7 - 9 - 12
#     |     `-- 10
#     `---- 8 - 11
TOKENS = (7, 8, 9, 10, 11, 12)
PARENTS = (-1, -1, 0, 0, 1, 2)


def tree(asked: Propose, bonus: int = 30) -> DraftBlock:
    guesses = (Guess(5, bonus, 0.5), Guess(0, 13, 0.25)) if bonus >= 0 else ()
    return DraftBlock(asked.base, TOKENS, PARENTS, generated_len=3, guesses=guesses)


def drafted(session: Session, bonus: int = 30) -> Round:
    asked = ask(session, 6)
    session.draft_arrived(asked, tree(asked, bonus))
    return session.next_round(1)


def test_a_kept_branch_is_committed_in_its_own_order() -> None:
    session = opened_session()
    asked = drafted(session)
    assert (asked.draft, asked.parents) == (TOKENS, PARENTS)
    step = session.verdict_arrived(Verdict(asked.base, 2, (40,), path=(1, 4)))
    assert step is not None and step.observation is not None
    assert session.generated == (8, 11, 40)
    assert [c.origin for c in step.tokens] == [Origin.KEPT, Origin.KEPT, Origin.BONUS]
    assert (step.num_accepted, step.observation.accepted, step.observation.predicted) == (
        2,
        2,
        False,
    )


def test_after_an_inner_node_the_targets_token_is_a_correction() -> None:
    session = opened_session()
    asked = drafted(session)
    step = session.verdict_arrived(Verdict(asked.base, 1, (40,)))
    assert step is not None and step.tokens[-1].origin is Origin.CORRECTION
    assert session.generated == (7, 40)


@pytest.mark.parametrize(
    ("bonus", "token", "predicted"), [(30, 30, True), (30, 40, False), (-1, 40, None)]
)
def test_a_guess_is_a_prediction_of_what_follows_its_branch(
    bonus: int, token: int, predicted: bool | None
) -> None:
    session = opened_session()
    asked = drafted(session, bonus)
    step = session.verdict_arrived(Verdict(asked.base, 3, (token,), path=(0, 2, 5)))
    assert step is not None and step.observation is not None
    assert step.observation.predicted is predicted


@pytest.mark.parametrize(
    "path",
    [(0, 4), (2, 5), (0, 6), (1, 0), ()],
)
def test_what_is_no_branch_commits_nothing(path: tuple[int, ...]) -> None:
    session = opened_session()
    asked = drafted(session)
    with pytest.raises(CorruptModelOutput, match="follow each other"):
        session.verdict_arrived(Verdict(asked.base, 2, (40,), path=path))
    assert session.generated == ()


@pytest.mark.parametrize(
    ("committed", "left", "parents", "guesses"),
    [
        ((7,), (9, 10, 12), (-1, -1, 0), (Guess(2, 30, 0.5), Guess(-1, 13, 0.25))),
        ((7, 9), (12,), (), (Guess(0, 30, 0.5),)),
        ((8,), (11,), (), ()),
    ],
)
def test_the_tree_below_what_was_committed_is_left(
    committed: tuple[int, ...],
    left: tuple[int, ...],
    parents: tuple[int, ...],
    guesses: tuple[Guess, ...],
) -> None:
    session = opened_session()
    asked = ask(session, 6)
    commit(session, *committed)
    session.draft_arrived(asked, tree(asked))
    draft = session.draft()
    assert draft is not None
    assert (draft.tokens, draft.parents, draft.guesses) == (left, parents, guesses)
    assert draft.trimmed == len(committed)


@pytest.mark.parametrize("committed", [(9,), (7, 11), (7, 10), (7, 9, 12)])
def test_another_way_or_a_leaf_leaves_nothing(committed: tuple[int, ...]) -> None:
    session = opened_session()
    asked = ask(session, 6)
    commit(session, *committed)
    session.draft_arrived(asked, tree(asked))
    assert session.draft() is None


def test_what_is_left_of_a_guess_is_likelier_once_its_branch_has_begun() -> None:
    session = opened_session()
    asked = ask(session, 6)
    commit(session, 7)
    expected = (0.5, 0.4, 0.3, 0.2, 0.1, 0.1)
    guesses = (Guess(0, 13, 0.25), Guess(-1, 14, 0.2))
    session.draft_arrived(asked, replace(tree(asked), expected=expected, guesses=guesses))
    draft = session.draft()
    assert draft is not None and draft.guesses == (Guess(-1, 13, 0.5),)


def test_drafts_are_requested_for_each_guess() -> None:
    session = opened_session()
    drafted(session)
    ahead = session.drafts_ahead(4)
    assert ahead is not None and ahead.outcomes == ((7, 9, 12, 30), (7, 13))


@pytest.mark.parametrize("parents", [(0, 0, 0, 0, 1, 2), (-1, -1), (-1, 2, 0, 0, 1, 2)])
def test_what_is_no_tree_is_refused(parents: tuple[int, ...]) -> None:
    session = opened_session()
    asked = ask(session, 6)
    with pytest.raises(CorruptModelOutput, match="no tree"):
        session.draft_arrived(asked, replace(tree(asked), parents=parents))
