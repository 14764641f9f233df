"""The session's rules one by one: staleness, what is sent, how commits are labelled and cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foredraft.errors import CorruptModelOutput, InvalidRequest, Unavailable
from foredraft.messages import DraftBlock, DraftOpened, Verdict
from foredraft.types import Acceptance, Candidates, FinishReason, Guess, Origin, Proposal
from orchestrator.session.session import Session
from tests.support.orchestrator.peers import MODEL, PROMPT, request
from tests.support.orchestrator.sessions import answer, answer_ahead, ask, commit, opened_session


def test_a_block_for_the_committed_prefix_is_verified_whole() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 3), 7, 8, 9))
    assert session.next_round(1).draft == (7, 8, 9)


def test_leading_tokens_committed_meanwhile_are_trimmed_if_equal() -> None:
    session = opened_session()
    block = answer(ask(session, 4), 7, 8, 9, 10)
    commit(session, 7, 8)
    session.draft_arrived(*block)
    draft = session.draft()
    assert draft is not None and (draft.tokens, draft.trimmed) == ((9, 10), 2)


def test_trimming_counts_what_arrived_before_the_commit_too() -> None:
    session = opened_session()
    asked = session.next_round(1)
    session.draft_arrived(*answer(ask(session, 3), 7, 8, 9))
    session.verdict_arrived(Verdict(asked.base, 0, (7,)))
    step_round = session.next_round(1)
    assert step_round.draft == (8, 9)
    step = session.verdict_arrived(Verdict(step_round.base, 1, (5,)))
    # For the controller, the trimmed token is one that the block got right.
    assert step is not None and step.observation is not None
    assert (step.num_accepted, step.observation.accepted, step.observation.requested_k) == (1, 2, 3)


@pytest.mark.parametrize("committed", [(6,), (7, 8, 1), (7, 8, 9)])
def test_a_block_that_went_another_way_or_is_used_up_is_dead(committed: tuple[int, ...]) -> None:
    session = opened_session()
    block = answer(ask(session, 3), 7, 8, 9)
    commit(session, *committed)
    session.draft_arrived(*block)
    assert session.draft() is None


def test_a_prefix_of_the_same_length_but_other_tokens_is_dead() -> None:
    one, other = opened_session(), opened_session()
    commit(one, 7)
    commit(other, 8)
    asked, block = answer(ask(other, 2), 1, 2)
    other.draft_arrived(asked, block)
    one.draft_arrived(asked, block)
    assert other.draft() is not None
    assert one.draft() is None


def test_a_block_for_a_longer_prefix_waits_for_its_verdict() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 2), 7, 8, bonus=9))
    asked = session.next_round(1)
    ahead = session.drafts_ahead(3)
    assert ahead is not None and (ahead.append, ahead.outcomes) == ((), ((7, 8, 9),))
    session.drafts_ahead_arrived(*answer_ahead(ahead, 4, 5, 6))
    assert session.draft() is None
    step = session.verdict_arrived(Verdict(asked.base, 2, (9,)))
    assert step is not None and step.hit
    assert session.next_round(1).draft == (4, 5, 6)


def test_after_a_miss_only_what_differs_is_sent() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 4), 7, 8, 9, 10, bonus=11))
    asked = session.next_round(1)
    ahead = session.drafts_ahead(4)
    assert ahead is not None and (ahead.keep_len, ahead.append) == (len(PROMPT), ())
    step = session.verdict_arrived(Verdict(asked.base, 2, (30,)))
    assert step is not None and step.ran_ahead and not step.hit
    just_in_time = ask(session, 4)
    assert (just_in_time.keep_len, just_in_time.append) == (len(PROMPT), (7, 8, 30))


def test_of_several_outcomes_the_one_that_comes_is_drafted_for() -> None:
    session = opened_session()
    asked, block = answer(ask(session, 2), 7, 8)
    guesses = (Guess(1, 9, 0.5), Guess(0, 5, 0.3), Guess(-1, 6, 0.1))
    session.draft_arrived(asked, replace(block, guesses=guesses))
    round_ = session.next_round(1)
    ahead = session.drafts_ahead(2)
    assert ahead is not None and ahead.outcomes == ((7, 8, 9), (7, 5), (6,))
    session.drafts_ahead_arrived(*answer_ahead(ahead, 3, 4, number=1))
    session.drafts_ahead_arrived(*answer_ahead(ahead, 1, 2, number=2))
    step = session.verdict_arrived(Verdict(round_.base, 1, (5,)))
    assert step is not None and step.hit and step.observation is not None
    assert step.observation.predicted
    assert session.next_round(1).draft == (3, 4)


def test_an_outcome_that_was_not_drafted_for_is_asked_for_in_time() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 2), 7, 8, bonus=9))
    round_ = session.next_round(1)
    ahead = session.drafts_ahead(2)
    assert ahead is not None
    session.verdict_arrived(Verdict(round_.base, 2, (9,)))
    assert session.could_serve(ahead)
    session.drafts_ahead_arrived(ahead, ())
    assert session.draft() is None and ask(session, 2).append == (7, 8, 9)


def test_an_answer_for_an_outcome_that_nobody_named_is_refused() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 2), 7, 8, bonus=9))
    session.next_round(1)
    ahead = session.drafts_ahead(2)
    assert ahead is not None
    with pytest.raises(CorruptModelOutput):
        session.drafts_ahead_arrived(ahead, (DraftBlock(ahead.base, (1,)),))


def test_nothing_is_drafted_ahead_without_a_guess_or_past_the_end() -> None:
    no_guess = opened_session()
    no_guess.draft_arrived(*answer(ask(no_guess, 2), 7, 8))
    no_guess.next_round(1)
    assert no_guess.drafts_ahead(4) is None

    stop = opened_session(stop_token_ids=(8,))
    stop.draft_arrived(*answer(ask(stop, 2), 7, 8, bonus=9))
    stop.next_round(1)
    assert stop.drafts_ahead(4) is None

    for max_new, drafted_ahead in ((3, 0), (4, 0), (5, 1), (6, 2)):
        end = opened_session(max_new)
        end.draft_arrived(*answer(ask(end, 2), 7, 8, bonus=9))
        end.next_round(1)
        ahead = end.drafts_ahead(4)
        assert (ahead.num_tokens if ahead else 0) == drafted_ahead


def test_a_draft_leaves_room_for_the_targets_own_token() -> None:
    session = opened_session(3)
    assert ask(session, 9).num_tokens == 2
    assert opened_session(1).next_draft(9) is None


def test_a_draft_stays_within_the_drafters_limits() -> None:
    session = opened_session()
    session.drafter_opened(DraftOpened(MODEL, 3))
    assert ask(session, 9).num_tokens == 3
    session.drafter_opened(DraftOpened(replace(MODEL, max_len=len(PROMPT) + 2), 16))
    assert ask(session, 9).num_tokens == 2
    session.drafter_opened(DraftOpened(replace(MODEL, max_len=len(PROMPT)), 16))
    assert session.next_draft(9) is None


def test_origins_of_a_full_match_a_mismatch_and_a_plain_round() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 2), 7, 8))
    step = session.verdict_arrived(Verdict(session.next_round(1).base, 2, (9,)))
    assert step is not None
    assert [c.origin for c in step.tokens] == [Origin.KEPT, Origin.KEPT, Origin.BONUS]
    session.draft_arrived(*answer(ask(session, 2), 7, 8))
    step = session.verdict_arrived(Verdict(session.next_round(1).base, 1, (9,)))
    assert step is not None
    assert [c.origin for c in step.tokens] == [Origin.KEPT, Origin.CORRECTION]
    step = session.verdict_arrived(Verdict(session.next_round(2).base, 0, (1, 2)))
    assert step is not None
    assert [c.origin for c in step.tokens] == [Origin.PLAIN, Origin.PLAIN]


def test_what_of_the_prompt_was_cached_is_told_once() -> None:
    session = opened_session()
    cached = []
    for _ in range(2):
        verdict = Verdict(session.next_round(1).base, 0, (1,), cached_tokens=2)
        step = session.verdict_arrived(verdict)
        assert step is not None
        cached.append(step.cached_tokens)
    assert cached == [2, 0]


def test_a_stop_token_inside_a_kept_draft_ends_the_request_there() -> None:
    session = opened_session(stop_token_ids=(8,))
    session.draft_arrived(*answer(ask(session, 3), 7, 8, 9))
    step = session.verdict_arrived(Verdict(session.next_round(1).base, 3, (1,)))
    assert step is not None and step.num_accepted == 2
    assert session.generated == (7, 8)
    assert session.finish is FinishReason.STOP


def test_a_stop_token_in_the_last_place_is_a_stop_not_a_length() -> None:
    session = opened_session(2, stop_token_ids=(8,))
    commit(session, 7, 8)
    assert session.finish is FinishReason.STOP


def test_the_lost_rounds_draft_is_asked_again_under_a_new_number() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 2), 7, 8))
    lost = session.next_round(1)
    assert session.next_round(1) is lost
    session.verifier_lost()
    again = session.next_round(1)
    assert again.draft == (7, 8)
    assert again.base == replace(lost.base, round=lost.base.round + 1)
    assert session.verdict_arrived(Verdict(lost.base, 0, (5,))) is None
    assert session.generated == ()


def test_reopening_brings_the_committed_prefix_and_what_is_still_wanted() -> None:
    session = opened_session(6, stop_token_ids=(2,))
    commit(session, 7, 8)
    opened = session.verify_open(16, Acceptance.COUPLED)
    assert opened.prefix == (*PROMPT, 7, 8)
    assert (opened.max_new_tokens, opened.max_draft, opened.stop_token_ids) == (4, 3, (2,))
    assert session.draft_open(Proposal.CPS, Acceptance.COUPLED).prefix == opened.prefix
    assert session.draft_open(Proposal.CPS, Acceptance.COUPLED).max_len == len(PROMPT) + 6


def test_reopening_says_where_the_prompt_ends_and_whether_drafts_were_judged() -> None:
    session = opened_session()
    commit(session, 7)
    assert session.draft_open(Proposal.CPS, Acceptance.REJECTION).prompt_len == len(PROMPT)
    assert not session.verify_open(16, Acceptance.REJECTION).drafted
    session.draft_arrived(*answer(ask(session, 2), 8, 9))
    asked = session.next_round(1)
    assert not session.verify_open(16, Acceptance.REJECTION).drafted
    session.verdict_arrived(Verdict(asked.base, 1, (5,)))
    assert session.verify_open(16, Acceptance.REJECTION).drafted


def test_another_target_may_not_take_over() -> None:
    session = opened_session()
    with pytest.raises(Unavailable):
        session.verifier_opened(replace(MODEL, tokenizer_hash="another"))


def test_a_drafter_of_another_tokenizer_is_named() -> None:
    session = opened_session()
    assert session.mismatch is None
    session.drafter_opened(DraftOpened(replace(MODEL, tokenizer_hash="x"), 16))
    assert session.mismatch is not None


def test_tokens_that_the_target_does_not_know_never_reach_it() -> None:
    session = Session(request())
    session.draft_open(Proposal.ARGMAX, Acceptance.COUPLED)
    session.drafter_opened(DraftOpened(replace(MODEL, vocab_size=6000), 16))
    # Taken in while nobody knows the target's vocabulary, cut as soon as it is known.
    session.draft_arrived(*answer(ask(session, 2), 1, 5000))
    session.verifier_opened(MODEL)
    draft = session.draft()
    assert draft is not None and draft.tokens == (1,)
    # What the drafter itself cannot know is another matter.
    with pytest.raises(CorruptModelOutput):
        session.draft_arrived(*answer(ask(session, 2), 1, 6000))


@pytest.mark.parametrize("fields", [{"max_new_tokens": 0}, {"prompt": ()}])
def test_an_empty_request_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        Session(replace(request(), **fields))


def test_what_a_token_was_drawn_from_travels_and_is_trimmed_with_it() -> None:
    session = opened_session()
    asked = ask(session, 3)
    q = tuple(Candidates((t, t + 1), (3, 1)) for t in (7, 8, 9))
    block = replace(answer(asked, 7, 8, 9)[1], q=q)
    session.draft_arrived(asked, block)
    assert session.next_round(1).q == q
    later = opened_session()
    asked = ask(later, 3)
    commit(later, 7)
    later.draft_arrived(asked, replace(block, base=asked.base))
    assert later.next_round(1).q == q[1:]


def test_a_drafter_with_nothing_to_propose_is_not_asked_again_for_the_same_prefix() -> None:
    session = opened_session()
    session.draft_arrived(*answer(ask(session, 3)))
    assert session.next_draft(3) is None
    commit(session, 7)
    assert session.next_draft(3) is not None


def test_drafts_share_the_targets_noise_under_the_rule_coupled_only() -> None:
    session = Session(request(8))
    seed = session.verify_open(4, Acceptance.COUPLED).sampling.seed
    assert session.draft_open(Proposal.COUPLED, Acceptance.COUPLED).sampling.seed == seed
    other = session.draft_open(Proposal.COUPLED, Acceptance.REJECTION)
    assert other.sampling.seed != seed
    assert session.verify_open(4, Acceptance.REJECTION).sampling.seed == seed
