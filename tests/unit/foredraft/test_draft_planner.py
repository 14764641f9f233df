"""What is requested of a drafter, by the session and by verifier-led rounds alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foredraft.decoding.committed_prefix import CommittedPrefix
from foredraft.decoding.draft_planner import AheadRequest, DraftPlanner, DraftRequest, NgramDraft
from foredraft.decoding.drafter_view import DrafterView
from foredraft.decoding.outcomes import outcome
from foredraft.messages import DraftOpened, Propose, ProposeAhead
from foredraft.ngram.params import NgramParams
from foredraft.types import NGRAM, ModelInfo

MODEL = ModelInfo(50, 100, "tokenizer", "exact", "drafter")
LIKELY = NgramParams(min_expected_tokens=1.0, pseudocounts=(0.01,))


def planner(*tokens: int, end: int = 40, **fields: object) -> DraftPlanner:
    prefix = CommittedPrefix(tokens)
    view = DrafterView(DraftOpened(MODEL, 8), 0)
    made = DraftPlanner(prefix.tokens, prefix.base("s", 3), end, frozenset({9}), view)
    return replace(made, **fields)


def request(planned: object) -> Propose:
    assert isinstance(planned, DraftRequest)
    return planned.request


def test_a_request_names_what_the_stream_does_not_have() -> None:
    first = planner(1, 2, 3)
    planned = first.next(4)
    assert request(planned) == Propose(first.base, 0, (1, 2, 3), 4)
    assert isinstance(planned, DraftRequest)
    grown = planner(1, 2, 3, 4, view=planned.view)
    assert request(grown.next(4)) == Propose(grown.base, 3, (4,), 4)


def test_the_last_wanted_token_is_never_drafted() -> None:
    assert request(planner(1, 2, end=6).next(8)).num_tokens == 3
    assert planner(1, 2, end=3).next(8) is None
    assert planner(1, 2, end=2).next(8) is None


def test_a_draft_stays_within_the_drafters_limits_and_the_rounds() -> None:
    assert request(planner(1, 2).next(20)).num_tokens == 8
    assert request(planner(1, 2, max_k=5).next(20)).num_tokens == 5
    short = DrafterView(DraftOpened(replace(MODEL, max_len=4), 8), 0)
    assert request(planner(1, 2, view=short).next(20)).num_tokens == 2
    assert planner(1, 2, 3, 4, view=short).next(20) is None
    assert planner(1, 2).next(0) is None


def test_without_a_drafter_nothing_is_requested() -> None:
    alone = planner(1, 2, view=None)
    assert alone.next(4) is None
    assert alone.after((outcome(alone.base, (3,)),), 4) is None


def test_predicted_outcomes_are_requested_at_once_behind_the_prefix() -> None:
    made = planner(1, 2, 3)
    outcomes = [outcome(made.base, tokens) for tokens in ((4, 5), (4, 6), (7,))]
    planned = made.after(outcomes, 4)
    expected = ProposeAhead(made.base, 0, (1, 2, 3), 4, ((4, 5), (4, 6), (7,)))
    assert isinstance(planned, AheadRequest) and planned.request == expected
    assert planned.view.committed_len == 3


def test_outcomes_without_use_are_left_out() -> None:
    made = planner(1, 2, 3, end=7)
    stopped, full, good = (outcome(made.base, t) for t in ((4, 9), (4, 5, 6), (4, 5)))
    planned = made.after((stopped, full, good), 4)
    assert planned is not None and planned.request.outcomes == ((4, 5),)
    assert planned.request.num_tokens == 1
    assert made.after((stopped, full), 4) is None


def test_n_grams_come_first_and_need_no_drafter() -> None:
    for view in (None, DrafterView(DraftOpened(MODEL, 1), 0)):
        made = planner(1, 2, 3, 1, ngram=LIKELY, view=view)
        planned = made.next(2)
        assert isinstance(planned, NgramDraft)
        assert (planned.k, planned.block.base, planned.block.proposal) == (2, made.base, NGRAM)
        assert (planned.block.tokens, planned.block.parents) == ((2, 3), ())
        assert planned.block.generated_len == 2


def test_where_n_grams_do_not_suffice_the_drafter_is_asked() -> None:
    made = planner(1, 2, 3, 1, ngram=replace(LIKELY, min_expected_tokens=9.0))
    assert request(made.next(2)).base == made.base


def test_where_the_text_went_on_in_two_ways_both_are_drafted() -> None:
    made = planner(0, 1, 2, 3, 0, 1, 2, 9, 0, 1, 2, ngram=LIKELY)
    planned = made.next(4)
    assert isinstance(planned, NgramDraft) and planned.k == 4
    # 9 came last; it is a stop, after which nothing comes.
    block = planned.block
    assert (block.tokens, block.parents) == ((9, 3, 0, 1), (-1, -1, 1, 2))
    assert block.generated_len == 0 and block.guesses == ()


@pytest.mark.parametrize(("end", "drafted"), [(8, 0), (9, 1), (10, 2)])
def test_n_grams_leave_the_last_wanted_token_too(end: int, drafted: int) -> None:
    few = replace(LIKELY, min_expected_tokens=0.5)
    planned = planner(1, 2, 3, 1, 2, 3, 1, ngram=few, end=end, view=None).next(4)
    assert (len(planned.block.tokens) if isinstance(planned, NgramDraft) else 0) == drafted
