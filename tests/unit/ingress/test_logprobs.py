"""The logprobs object: chunks add up, the chosen token is always told."""

from __future__ import annotations

import math

from deployments.ingress.logprobs import LogprobsText
from foredraft.types import Committed, Origin, TokenLogprobs
from tests.unit.ingress.test_detokenizer import TOKENIZER

A, B, C = TOKENIZER.encode("abc").ids


def told(token: int, logprob: float, *top: tuple[int, float]) -> Committed:
    return Committed(token, Origin.KEPT, TokenLogprobs(logprob, 1, top))


def test_offsets_go_on_from_chunk_to_chunk() -> None:
    text = LogprobsText(TOKENIZER)
    first = text.of([told(A, -1.0), told(B, -2.0)])
    assert first == {
        "tokens": ["a", "b"],
        "token_logprobs": [-1.0, -2.0],
        "top_logprobs": [None, None],
        "text_offset": [0, 1],
    }
    second = text.of([told(C, -3.0)])
    assert second is not None and second["text_offset"] == [2]


def test_the_chosen_token_stands_among_the_likeliest() -> None:
    found = LogprobsText(TOKENIZER).of([told(C, -5.0, (A, -0.5), (B, -1.5))])
    assert found is not None
    assert list(found["top_logprobs"][0].items()) == [("a", -0.5), ("b", -1.5), ("c", -5.0)]


def test_what_cannot_be_is_still_json() -> None:
    found = LogprobsText(TOKENIZER).of([told(A, -math.inf, (A, -math.inf))])
    assert found is not None and found["token_logprobs"] == [-9999.0]


def test_nobody_asked() -> None:
    assert LogprobsText(TOKENIZER).of([Committed(A, Origin.PLAIN)]) is None
    assert LogprobsText(TOKENIZER).of([]) is None
