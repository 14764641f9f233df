"""The marginals that DiffuSpec's acceptance reads as q, of a path that a search picked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drafter_service.proposals.marginals import marginals
from drafter_service.proposals.proposals import Drafted
from drafter_service.proposals.sampled import TOTAL
from foredraft.errors import InvalidRequest
from foredraft.limits import check_candidates
from foredraft.types import Proposal, SamplingParams
from tests.support.drafters import (
    EOS,
    ScriptedLM,
    counting,
    driven,
    opening,
    scores_of,
    strategies_of,
)

ROWS = [{1: 0.5, 2: 0.3, EOS: 0.2}, {3: 0.6, 4: 0.3, EOS: 0.1}, {5: 0.7, 6: 0.2, EOS: 0.1}]
# A search goes through 2 and 4; by itself each slot prefers 1, 3 and 5.
SCORES = scores_of(ROWS, {(1, 2, 4): 6.0, (1, 1, 3): -6.0, (1, 1, 4): -6.0})
WARM = SamplingParams(0.8, seed=3)


def test_each_token_has_the_softmax_of_its_own_slot() -> None:
    for token, row, (ids, weights) in zip(
        (2, 4), ROWS, marginals(SCORES, (2, 4), WARM, 64), strict=False
    ):
        tempered = {t: p ** (1 / 0.8) for t, p in row.items()}
        expected = {t: p / sum(tempered.values()) for t, p in tempered.items()}
        shares = {t: w / TOTAL for t, w in zip(ids, weights, strict=True)}
        assert shares == pytest.approx(expected, abs=1 / TOTAL)
        assert token in ids


def test_a_token_that_is_not_among_the_best_has_the_least_weight() -> None:
    found = marginals(SCORES, (EOS,), WARM, 2)
    assert found[0].tokens == (1, EOS) and found[0].weights[-1] == 1
    # As it is where the target's filters drop it.
    found = marginals(SCORES, (2,), SamplingParams(0.8, top_k=1), 64)
    assert found[0].tokens == (1, 2) and found[0].weights == (TOTAL, 1)
    check_candidates("q", found, (2,))


def drafted(proposal: Proposal, sampling: SamplingParams, with_marginals: bool = False) -> Drafted:
    request = opening("s", (3, 4, 5), proposal=proposal, sampling=sampling)
    strategy = strategies_of(ScriptedLM(counting)).make(replace(request, marginals=with_marginals))
    return driven(strategy.draft(2, (3, 4, 5), 50), lambda asked: SCORES)[0]


@pytest.mark.parametrize("proposal", [Proposal.ARGMAX, Proposal.COUPLED, Proposal.CPS])
def test_a_drafter_that_is_asked_sends_them_with_a_path_without_noise(proposal: Proposal) -> None:
    plain = drafted(proposal, SamplingParams())
    for seed in range(20):
        block = drafted(proposal, SamplingParams(0.8, seed=seed), with_marginals=True)
        assert block.tokens == plain.tokens
        assert block.q == marginals(SCORES, plain.tokens, WARM, 64)
    assert not drafted(proposal, WARM).q
    # No rule reads them at temperature 0.
    assert not drafted(proposal, SamplingParams(), with_marginals=True).q


def test_what_was_drawn_keeps_its_own() -> None:
    asked = drafted(Proposal.SAMPLED, WARM, with_marginals=True)
    assert asked == drafted(Proposal.SAMPLED, WARM) and asked.q


def test_a_tree_has_none() -> None:
    with pytest.raises(InvalidRequest) as caught:
        drafted(Proposal.TREE, WARM, with_marginals=True)
    assert caught.value.param == "marginals"
