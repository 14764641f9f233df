"""The logprobs object: chunks add up, the chosen token is always told, the prompt comes first."""

from __future__ import annotations

import math

from deployments.ingress.openai.completions.choice import CompletionChoice
from deployments.ingress.openai.completions.logprobs import LogprobsText
from deployments.ingress.stream.sse import Delta
from foredraft.types import Committed, Origin, TokenLogprobs
from tests.support.tokenizers_by_hand import byte_tokenizer

TOKENIZER = byte_tokenizer()

A, B, C = TOKENIZER.encode("abc").ids


def told(token: int, logprob: float, *top: tuple[int, float]) -> tuple[int, TokenLogprobs]:
    return token, TokenLogprobs(logprob, 1, top)


def test_offsets_go_on_from_chunk_to_chunk() -> None:
    text = LogprobsText(TOKENIZER)
    assert text.of([told(A, -1.0), told(B, -2.0)]) == {
        "tokens": ["a", "b"],
        "token_logprobs": [-1.0, -2.0],
        "top_logprobs": [None, None],
        "text_offset": [0, 1],
    }
    assert text.of([told(C, -3.0)])["text_offset"] == [2]


def test_the_chosen_token_stands_among_the_likeliest() -> None:
    found = LogprobsText(TOKENIZER).of([told(C, -5.0, (A, -0.5), (B, -1.5))])
    assert list(found["top_logprobs"][0].items()) == [("a", -0.5), ("b", -1.5), ("c", -5.0)]


def test_what_cannot_be_is_still_json() -> None:
    found = LogprobsText(TOKENIZER).of([told(A, -math.inf, (A, -math.inf))])
    assert found["token_logprobs"] == [-9999.0]


def committed(token: int, logprob: float) -> Committed:
    return Committed(token, Origin.KEPT, TokenLogprobs(logprob, 1))


def test_an_echoed_prompt_comes_once_and_before_the_first_tokens() -> None:
    choice = CompletionChoice(TOKENIZER, (A, B), logprobs=True)
    first = Delta("c", (committed(C, -3.0),), prompt_logprobs=(TokenLogprobs(-2.0, 1),))
    [found] = choice.chunks(first)
    assert found["text"] == "abc"
    assert found["logprobs"]["token_logprobs"] == [None, -2.0, -3.0]
    assert found["logprobs"]["text_offset"] == [0, 1, 2]
    [found] = choice.chunks(Delta("a", (committed(A, -1.0),)))
    assert found["text"] == "a"
    assert found["logprobs"]["text_offset"] == [3]


def test_nobody_asked() -> None:
    choice = CompletionChoice(TOKENIZER, (A,), logprobs=False)
    delta = Delta("b", (Committed(B, Origin.PLAIN),))
    assert choice.whole(delta) == {"text": "ab", "logprobs": None}
    assert choice.whole(delta)["text"] == "b"
    assert CompletionChoice(TOKENIZER, (), logprobs=True).whole(Delta(""))["logprobs"] is None
