"""Infill requests: which are refused, and how tokens become the texts of their holes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.ingress.openai.completions.infill import InfillChoice
from deployments.ingress.openai.completions.request import CompletionRequest, Hole
from deployments.ingress.stream.sse import Delta
from foredraft.errors import InvalidRequest
from foredraft.types import Committed, FinishReason, Origin, TokenLogprobs
from tests.support.tokenizers_by_hand import by_hand

PARTS: list[str | list[int] | Hole] = ["ab", Hole(mask=3), Hole(mask=1), "c", Hole(mask=4)]


# The last two are the bytes of one character.
TOKENIZER = by_hand(["x", "y", "z", "w", "Ã", "©"])
X, Y, Z, W, FIRST, SECOND = range(1, 7)


def deltas(tokens: list[int], cuts: set[int]) -> list[Delta]:
    """The tokens, cut before some of them; the last delta ends the answer."""
    groups: list[list[int]] = [[]]
    for at, token in enumerate(tokens):
        if at in cuts:
            groups.append([])
        groups[-1].append(token)
    found = [
        Delta("", tuple(Committed(t, Origin.PLAIN, TokenLogprobs(-1.0, 1)) for t in group))
        for group in groups
    ]
    return [*found, Delta("", finish_reason=FinishReason.LENGTH)]


@given(st.sets(st.integers(1, 7)))
def test_each_hole_is_a_text_of_its_own_however_tokens_come(cuts: set[int]) -> None:
    # The character that begins in one hole has no end in the next.
    tokens = [X, FIRST, SECOND, FIRST, SECOND, Y, Z, FIRST]
    choice, texts = InfillChoice(TOKENIZER, PARTS, logprobs=True), dict[int, str]()
    said = 0
    for delta in deltas(tokens, cuts):
        chunks = choice.chunks(delta)
        for chunk in chunks:
            texts[chunk["part"]] = texts.get(chunk["part"], "") + chunk["text"]
        said += len(chunks[-1]["logprobs"]["tokens"]) if chunks[-1]["logprobs"] else 0
        assert all(chunk["logprobs"] is None for chunk in chunks[:-1])
    assert texts == {1: "xé", 2: "\ufffd", 4: "\ufffdyz\ufffd"}
    assert said == 8
    whole = InfillChoice(TOKENIZER, PARTS, logprobs=False).whole(
        Delta("", tuple(Committed(t, Origin.PLAIN) for t in tokens), FinishReason.LENGTH)
    )
    assert {each["part"]: each["text"] for each in whole["parts"]} == texts
    assert whole["text"] == "".join(texts.values()) and whole["logprobs"] is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"infill": ["a"]}, "infill"),
        ({"infill": []}, "infill"),
        ({"infill": [{"mask": 3}]}, "infill"),
        *(
            ({"infill": ["a", {"mask": 3}], name: value}, name)
            for name, value in {
                "prompt": "a",
                "suffix": "b",
                "echo": True,
                "max_tokens": 4,
                "min_tokens": 2,
                "stop": "x",
            }.items()
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        CompletionRequest.model_validate(fields).check("m")
    assert refused.value.param == param


@pytest.mark.parametrize("part", [{"mask": 0}, {"mask": "3"}, {"mask": 1, "x": 1}, 5, None])
def test_a_part_is_a_text_or_a_hole(part: Any) -> None:
    with pytest.raises(ValueError, match="infill"):
        CompletionRequest.model_validate({"infill": ["a", part]})


def test_what_the_services_name_is_the_field_of_the_request() -> None:
    asked = CompletionRequest.model_validate({"infill": ["a", {"mask": 3}]})
    asked.check("m")
    assert asked.field_of("layout.length") == asked.field_of("prefix length") == "infill"
    assert CompletionRequest(prompt="a").field_of("layout.length") == "max_tokens"
