"""Texts under a grammar: what may come next, in drafts and without, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from deployments.config import model_path
from foredraft.errors import InvalidRequest
from foredraft.messages import VerifyOpen
from foredraft.model_files import tokenizer_file
from foredraft.types import Grammar, GrammarKind, LogitsParams, SamplingParams
from tests.support.verifiers import (
    CountingModel,
    kv_of,
    make_engine,
    opening,
    round_after,
    verdict_of,
)
from verifier_service.rules.grammars import TokenGrammars
from verifier_service.targets.engine import VerifierEngine

FOLDER = "models/embedded/tokenizer"
TOKENIZER = Tokenizer.from_file(model_path(f"{FOLDER}/tokenizer.json"))
VOCAB, EOS = TOKENIZER.get_vocab_size(), 0
CALL = Grammar(GrammarKind.REGEX, r"f\([a-z]{1,12}(, [a-z]{1,12})?\)")
BOMB = Grammar(GrammarKind.REGEX, "(a{1000}){1000}")
A, B = (TOKENIZER.token_to_id(letter) for letter in "ab")
PROMPT = (5, 6, 7)


class Noise(CountingModel):
    """Random logits of its own for every length of text: no sense in them but the grammar's."""

    def __init__(self) -> None:
        super().__init__(max_len=200, vocab=VOCAB)

    def logits(self, text: list[int]) -> np.ndarray:  # type: ignore[override]
        seed = hash(tuple(text)) % (1 << 32)
        return np.random.default_rng(seed).normal(0, 2, VOCAB)


@pytest.fixture(scope="module")
def grammars() -> TokenGrammars:
    found = tokenizer_file(Path(model_path(FOLDER)))
    assert found is not None
    return TokenGrammars(found, VOCAB, [EOS])


def text_of(tokens: tuple[int, ...]) -> str:
    return str(TOKENIZER.decode(list(tokens)))


def asking(grammar: Grammar, sampling: SamplingParams | None = None) -> VerifyOpen:
    asked = opening(PROMPT, stop=(EOS,), sampling=sampling)
    return replace(asked, grammar=grammar, logits=LogitsParams(prompt_len=len(PROMPT)))


def spoken(
    grammars: TokenGrammars, sampling: SamplingParams, truth: tuple[int, ...]
) -> tuple[int, ...]:
    """A text to its EOS, by drafts cut from truth with a wrong token in them, or plainly."""
    model = Noise()
    engine = VerifierEngine(model, kv_of(model), grammars=grammars)
    handle = engine.open(asking(CALL, sampling), engine.matcher(CALL))
    text, number = list(PROMPT), 0
    while EOS not in text[3:]:
        while engine.has_work:
            engine.step()
        draft = truth[len(text) - 3 :][:5]
        if number % 2 and len(draft) > 1:
            draft = (draft[0], 99, *draft[2:])
        verdict = verdict_of(engine, handle, round_after(text, draft, number=number))
        text += [*draft[: verdict.accepted], *verdict.next_tokens]
        number += 1
    return tuple(text[3 : text.index(EOS, 3)])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_text_follows_its_grammar_and_drafts_change_nothing(
    grammars: TokenGrammars, temperature: float
) -> None:
    for seed in range(3):
        sampling = SamplingParams(temperature, seed=seed)
        plain = spoken(grammars, sampling, ())
        assert re.fullmatch(CALL.text, text_of(plain))
        assert spoken(grammars, sampling, (*plain, EOS)) == plain


def test_a_guide_is_as_it_was_after_any_branch(grammars: TokenGrammars) -> None:
    matcher = grammars.matcher(CALL)
    before = matcher.allowed([()])[0]
    ids = TOKENIZER.encode("f(abc)").ids
    ended = matcher.allowed([(), ids])[1]
    assert np.flatnonzero(ended).tolist() == [EOS]
    assert not matcher.allowed([(), [*ids, EOS, EOS]])[1][1:].any()
    matcher.allowed([(), [ids[0], 99, 99]])
    assert (matcher.allowed([()])[0] == before).all()
    matcher.extend(ids[0])
    assert not (matcher.allowed([()])[0] == before).all()


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(GrammarKind.REGEX, "(("),
        Grammar(GrammarKind.LARK, "begin: 'a'"),
        Grammar(GrammarKind.JSON_SCHEMA, "{"),
        Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"type": "nothing"})),
        # Languages without a text.
        Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"$ref": "#"})),
        Grammar(GrammarKind.REGEX, r"[^\s\S]"),
        # More work than any mask may be.
        Grammar(GrammarKind.LARK, "start: /((.|x){1,900}){1,900}/"),
    ],
)
def test_what_is_no_grammar_is_refused(grammars: TokenGrammars, grammar: Grammar) -> None:
    with pytest.raises(InvalidRequest) as refused:
        grammars.matcher(grammar)
    assert refused.value.param == "grammar"


def test_a_target_without_a_tokenizer_takes_no_grammar() -> None:
    with pytest.raises(InvalidRequest, match="tokenizer"):
        make_engine().open(replace(opening(PROMPT), grammar=CALL))


def engine_of(grammars: TokenGrammars, favourite: int) -> VerifierEngine:
    """An engine whose target would say one token over and over."""
    model = Noise()
    model.logits = lambda _: np.eye(VOCAB)[favourite] * 9
    return VerifierEngine(model, kv_of(model), grammars=grammars)


def test_a_grammar_that_breaks_under_way_is_an_error_and_no_end(grammars: TokenGrammars) -> None:
    engine = engine_of(grammars, A)
    handle = engine.open(asking(BOMB))
    text = list(PROMPT)
    found = verdict_of(engine, handle, round_after(text))
    assert found.next_tokens == (A,)
    engine.submit(handle, round_after([*text, A], number=1))
    while not (outcomes := engine.step()):
        pass
    [(_, error)] = outcomes
    assert isinstance(error, InvalidRequest)
    assert error.param == "grammar"


def test_a_draft_that_breaks_a_grammar_changes_no_text(grammars: TokenGrammars) -> None:
    asked = Grammar(GrammarKind.REGEX, "bb{1,3}|a(a{1000}){1000}")
    texts = []
    for draft in ((), (A, A, A), (B, B), (B,)):
        engine = engine_of(grammars, B)
        handle = engine.open(asking(asked))
        text, number = list(PROMPT), 0
        while text[-1] != EOS:
            verdict = verdict_of(engine, handle, round_after(text, draft, number=number))
            text += [*draft[: verdict.accepted], *verdict.next_tokens]
            number += 1
        texts.append(text[: text.index(EOS)])
    assert texts == [[*PROMPT, B, B, B, B]] * 4


def test_where_the_time_is_up_a_draft_is_cut_and_the_text_the_same() -> None:
    found = tokenizer_file(Path(model_path(FOLDER)))
    assert found is not None
    # Every look at the clock is a second later.
    late = TokenGrammars(found, VOCAB, [EOS], clock=itertools.count().__next__)
    plain = spoken(late, SamplingParams(), ())
    assert len(late.matcher(CALL).allowed([(), (A,), (A, A)])) == 1
    assert spoken(late, SamplingParams(), (*plain, EOS)) == plain


class Dear:
    """A matcher that allows everything and takes a second for it."""

    seconds = 1.0

    def extend(self, token: int) -> None:
        pass

    def allowed(self, branches: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return [np.ones(VOCAB, dtype=np.bool_) for _ in branches]


def test_sessions_with_dear_grammars_take_turns_and_nobody_waits_for_them_all() -> None:
    model = Noise()
    engine = VerifierEngine(model, kv_of(model))
    dear = [engine.open(opening(PROMPT, session_id=name), Dear()) for name in ("d", "e", "f")]
    cheap = engine.open(opening(PROMPT))
    names = dict(zip((*dear, cheap), ("d", "e", "f", "s"), strict=True))
    while engine.has_work:
        engine.step()
    texts = {handle: list(PROMPT) for handle in names}
    served: list[int] = []
    for handle in names:
        engine.submit(handle, round_after(PROMPT, session_id=names[handle]))
    for number in range(6):
        for handle, verdict in engine.step():
            assert not isinstance(verdict, Exception)
            texts[handle] += verdict.next_tokens
            after = len(texts[handle]) - len(PROMPT)
            served.append(handle)
            asked = round_after(texts[handle], session_id=names[handle], number=after)
            engine.submit(handle, asked)
        assert served.count(cheap) == number + 1
    assert [served.count(handle) for handle in dear] == [2, 2, 2]
