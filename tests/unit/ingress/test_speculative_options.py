"""What a request's `speculative` object makes of the server's configuration."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from deployments.ingress.openai.speculative import SpeculativeOptions
from foredraft.errors import ConfigError, InvalidRequest
from foredraft.strict import parse
from foredraft.types import Acceptance, Proposal
from orchestrator.config import NgramConfig, OrchestratorConfig

NGRAM = NgramConfig(enabled=True, min_expected_tokens=2.5)
SERVER = OrchestratorConfig(proposal=Proposal.TREE, ngram=NGRAM, verifier_led_rounds=16)


def applied(**options: Any) -> OrchestratorConfig:
    return SpeculativeOptions.model_validate(options).applied_to(SERVER)


def test_what_a_request_leaves_out_is_the_servers() -> None:
    assert applied() == SERVER
    assert applied(proposal="coupled").ngram == NGRAM
    assert applied(verifier_led_rounds=0).verifier_led_rounds == 0


@pytest.mark.parametrize("proposal", list(Proposal))
def test_n_grams_are_switched_on_and_off_before_any_proposal(proposal: Proposal) -> None:
    off = applied(proposal=proposal, ngram={"enabled": False})
    assert off.ngram.params is None and off.proposal is proposal
    on = applied(proposal=proposal, ngram={"enabled": True, "depth": 3})
    assert on.ngram.params is not None and on.ngram.params.depth == 3


def test_a_request_that_says_how_drafters_draft_has_their_drafts() -> None:
    assert applied().self_draft == applied(detail=True).self_draft == SERVER.self_draft > 0
    assert applied(proposal="lookup").self_draft == applied(self_draft=0).self_draft == 0
    assert applied(proposal="lookup", self_draft=7).self_draft == 7


@pytest.mark.parametrize("acceptance", ["rejection", "block"])
def test_rules_for_paths_take_no_trees(acceptance: str) -> None:
    # The server's n-gram trees are left out, those that a request asks for are refused.
    chosen = applied(proposal="sampled", acceptance=acceptance)
    assert chosen.acceptance is Acceptance(acceptance) and not chosen.ngram.enabled
    for options in ({"proposal": "tree"}, {"proposal": "sampled", "ngram": {"enabled": True}}):
        with pytest.raises(InvalidRequest, match="cannot verify the trees") as caught:
            applied(acceptance=acceptance, **options)
        assert caught.value.param == "speculative.acceptance"


@pytest.mark.parametrize("drafts", [{"proposal": "tree"}, {"ngram": {"enabled": True}}])
def test_a_configuration_with_trees_that_no_rule_verifies_is_refused(
    drafts: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match="cannot verify the trees"):
        parse(OrchestratorConfig, {"acceptance": "rejection", **drafts})


@pytest.mark.parametrize(
    "options",
    [
        {"proposal": "hybrid"},
        {"self_draft": 257},
        {"proposal": "ngram"},
        {"ngram": {"least": 1}},
        {"direct_rounds": 1},
    ],
)
def test_what_is_no_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        applied(**options)
