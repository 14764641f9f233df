"""Requests of `foredraft audit --pairs`: all pairs of values, and nothing that is refused."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from deployments.ingress.openai.completions.request import CompletionRequest
from foredraft_cli.audit.options import OPTIONS, bodies, described, rows
from orchestrator.config import OrchestratorConfig

ROWS = rows()


def test_all_pairs_that_go_together_occur() -> None:
    for one, other in combinations(OPTIONS, 2):
        seen = [(row[one], row[other]) for row in ROWS]
        for value, another in product(OPTIONS[one], OPTIONS[other]):
            if (one, other) == ("min_tokens", "structured_outputs") and value:
                assert ((value, another) in seen) == (another is None)
            elif (one, other) == ("proposal", "draft") and another == {"extend": True}:
                assert ((value, another) in seen) == (value not in ("tree", "ar", "lookup"))
            else:
                assert (value, another) in seen
    assert len(ROWS) < 80


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_each_request_is_a_valid_one(number: int) -> None:
    body = bodies(["x = 1"], 24, 1)[number]
    request = CompletionRequest.model_validate(body)
    request.check("m")
    request.grammar()
    request.speculative.applied_to(OrchestratorConfig())


def test_texts_and_seeds_go_on_where_rows_begin_again() -> None:
    found = bodies(["a", "b", "c"], 8, len(ROWS) + 1)
    assert len(found) == 2 * len(ROWS)
    assert [body["prompt"] for body in found[:4]] == ["a", "b", "c", "a"]
    assert len({body["seed"] for body in found}) == len(found)
    assert found[0]["speculative"] == found[len(ROWS)]["speculative"]


def test_a_requests_options_are_named_where_they_are_not_the_usual() -> None:
    body = {"prompt": "x", "temperature": 0.8, "n": 1, "speculative": {"proposal": "tree"}}
    assert described(body) == '{"temperature": 0.8, "proposal": "tree"}'
